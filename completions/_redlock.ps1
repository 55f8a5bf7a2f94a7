
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'redlock' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'redlock'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'redlock' {
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print the version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print the version')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command while holding a lock')
            [CompletionResult]::new('acquire', 'acquire', [CompletionResultType]::ParameterValue, 'Take a lock and print its token')
            [CompletionResult]::new('extend', 'extend', [CompletionResultType]::ParameterValue, 'Lengthen a lease')
            [CompletionResult]::new('release', 'release', [CompletionResultType]::ParameterValue, 'Give a lease up')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show who holds a lock, or all locks')
            [CompletionResult]::new('wait', 'wait', [CompletionResultType]::ParameterValue, 'Wait until a lock is free, taking nothing')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the completions for a shell')
            break
        }
        'redlock;run' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'The length of lease asked for')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit with N when the lock is held by another')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit with N when the lock is held by another')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'The lease to enter, with --reentrant')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Queue for the lock, with D for D at most')
            [CompletionResult]::new('--grace', '--grace', [CompletionResultType]::ParameterName, 'SIGTERM to SIGKILL when we stop the job')
            [CompletionResult]::new('--kill-after', '--kill-after', [CompletionResultType]::ParameterName, 'SIGKILL D after a TERM, INT or QUIT sent to us')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'When the lease is lost: stop, or continue')
            [CompletionResult]::new('--hold-at-least', '--hold-at-least', [CompletionResultType]::ParameterName, 'Keep the lock that long, however quick the job')
            [CompletionResult]::new('--max-run', '--max-run', [CompletionResultType]::ParameterName, 'Stop the job when it has run for D; exit 124')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('--reentrant', '--reentrant', [CompletionResultType]::ParameterName, 'Enter the lease that we run under once more')
            [CompletionResult]::new('--whole', '--whole', [CompletionResultType]::ParameterName, 'The job lasts until its last process ends')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;acquire' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'The length of lease asked for')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit with N when the lock is held by another')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit with N when the lock is held by another')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'The lease to enter, with --reentrant')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Queue for the lock, with D for D at most')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('--reentrant', '--reentrant', [CompletionResultType]::ParameterName, 'Enter the lease that we run under once more')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;extend' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'The token that acquire printed')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'The lease lasts for D at least from now [default: the ttl it was taken with]')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;release' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'The token that acquire printed; with --revoke and --force, the eight characters that status shows')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('--revoke', '--revoke', [CompletionResultType]::ParameterName, 'End somebody''s lease safely: its job is stopped, and the lock is free when that is done')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Free the lock now, while its job may still run')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;status' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Exit 0 when this token holds the lock, else 77')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Show it again every D')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('--exit-code', '--exit-code', [CompletionResultType]::ParameterName, 'Exit 0 when the lock is free, 75 when it is held; so does -q')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;wait' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'The lock')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Wait for D at most [default: for ever]')
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
        'redlock;completions' {
            [CompletionResult]::new('--redis', '--redis', [CompletionResultType]::ParameterName, 'A Redis; where there are several, most must agree')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]')
            [CompletionResult]::new('--quarantine', '--quarantine', [CompletionResultType]::ParameterName, 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Silence talk; failures still print')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help: -h in short, --help all of it')
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
