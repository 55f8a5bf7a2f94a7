
use builtin;
use str;

set edit:completion:arg-completer[redlock] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'redlock'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'redlock'= {
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand -V 'Print the version'
            cand --version 'Print the version'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
            cand run 'Run a command while holding a lock'
            cand acquire 'Take a lock and print its token'
            cand extend 'Lengthen a lease'
            cand release 'Give a lease up'
            cand status 'Show who holds a lock, or all locks'
            cand wait 'Wait until a lock is free, taking nothing'
            cand completions 'Print the completions for a shell'
        }
        &'redlock;run'= {
            cand --name 'The lock'
            cand --ttl 'The length of lease asked for'
            cand -E 'Exit with N when the lock is held by another'
            cand --conflict-exit-code 'Exit with N when the lock is held by another'
            cand --token 'The lease to enter, with --reentrant'
            cand --wait 'Queue for the lock, with D for D at most'
            cand --grace 'SIGTERM to SIGKILL when we stop the job'
            cand --kill-after 'SIGKILL D after a TERM, INT or QUIT sent to us'
            cand --on-lost 'When the lease is lost: stop, or continue'
            cand --hold-at-least 'Keep the lock that long, however quick the job'
            cand --max-run 'Stop the job when it has run for D; exit 124'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand --reentrant 'Enter the lease that we run under once more'
            cand --whole 'The job lasts until its last process ends'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;acquire'= {
            cand --name 'The lock'
            cand --ttl 'The length of lease asked for'
            cand -E 'Exit with N when the lock is held by another'
            cand --conflict-exit-code 'Exit with N when the lock is held by another'
            cand --token 'The lease to enter, with --reentrant'
            cand --wait 'Queue for the lock, with D for D at most'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand --reentrant 'Enter the lease that we run under once more'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;extend'= {
            cand --name 'The lock'
            cand --token 'The token that acquire printed'
            cand --ttl 'The lease lasts for D at least from now [default: the ttl it was taken with]'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;release'= {
            cand --name 'The lock'
            cand --token 'The token that acquire printed; with --revoke and --force, the eight characters that status shows'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand --revoke 'End somebody''s lease safely: its job is stopped, and the lock is free when that is done'
            cand --force 'Free the lock now, while its job may still run'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;status'= {
            cand --name 'The lock'
            cand --token 'Exit 0 when this token holds the lock, else 77'
            cand --watch 'Show it again every D'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand --exit-code 'Exit 0 when the lock is free, 75 when it is held; so does -q'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;wait'= {
            cand --name 'The lock'
            cand --timeout 'Wait for D at most [default: for ever]'
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
        &'redlock;completions'= {
            cand --redis 'A Redis; where there are several, most must agree'
            cand --prefix 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]'
            cand --node-timeout 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s]'
            cand --quarantine 'A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE] [default: the ttl; with a single node 0]'
            cand --password-file 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]'
            cand --label 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command''s base name]'
            cand --format 'How results are printed: text, json, or, with acquire, env: lines for a shell''s eval; run has none to print [default: text]'
            cand -q 'Silence talk; failures still print'
            cand --quiet 'Silence talk; failures still print'
            cand -v 'Tell more'
            cand --verbose 'Tell more'
            cand -h 'Print help: -h in short, --help all of it'
            cand --help 'Print help: -h in short, --help all of it'
        }
    ]
    $completions[$command]
}
