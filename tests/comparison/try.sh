#!/usr/bin/env bash
# Tries the cells of README's comparison that one machine can show, with the tools that are installed: what happens when
# the tool is killed, when the tool is cut off from its server, when a job lasts longer than its lease, and in which
# order waiters get the lock. The judge is the kernel: each job takes flock on one file, and says so if another job has
# this flock.
#
#     tests/comparison/try.sh target/release/redlock [TOOL...]
#
# Needs redis-server and socat; for the columns of the tools flock, etcd and etcdctl, sem (parallel), python3-redis.
set -u

for program in redis-server socat; do
    command -v $program >/dev/null || { echo "try: $program is missing" >&2; exit 1; }
done
redlock=$(realpath "${1:-target/release/redlock}")
tools=${*:2}
work=$(mktemp -d) && cd "$work" || exit
server=7413 relay=7414 etcd=7415 etcd_relay=7416
trap 'trap - EXIT; kill $(jobs -p) $(cat pids 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
redis-server --port $server --save '' >redis.log &
command -v etcd >/dev/null && etcd --data-dir etcd --listen-client-urls http://127.0.0.1:$etcd --listen-peer-urls http://127.0.0.1:7417 \
    --advertise-client-urls http://127.0.0.1:$etcd >etcd.log 2>&1 &

# A job that says whether it is alone, and sleeps. The job is one process, so one SIGKILL ends all of it at once.
cat >job <<'END'
#!/usr/bin/env python3
import fcntl, os, sys, time
open("pids", "a").write(f"{os.getpid()}\n")
name, seconds = sys.argv[1], float(sys.argv[2])
judge = open("judge", "a")
try:
    fcntl.flock(judge, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(name, "alone", flush=True)
except OSError:
    print(name, "beside another", flush=True)
time.sleep(seconds)
END
cat >with-redis-py <<'END'
#!/usr/bin/python3
import subprocess, sys, redis
port, timeout, wait = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with redis.Redis(port=port).lock("l", timeout=timeout, blocking_timeout=wait):
    sys.exit(subprocess.call(sys.argv[4:]))
END
chmod +x job with-redis-py

# with TOOL PORTS JOB...: waits for the lock, and runs the job under it, with a lease of 3 s if the tool has leases.
with() {
    local tool=$1 redis=$2 etcd=$3
    shift 3
    case $tool in
    flock) exec flock l "$@" ;;
    etcdctl) ETCDCTL_API=3 exec etcdctl --endpoints=http://127.0.0.1:"$etcd" lock --ttl 3 l -- "$@" ;;
    sem) exec sem --will-cite -u --fg --id l "$@" ;;
    redis-py) exec ./with-redis-py "$redis" 3 60 "$@" ;;
    redlock) exec "$redlock" run l -q --redis redis://127.0.0.1:"$redis" --ttl 3s --wait -- "$@" ;;
    esac
}
until_in() { for _ in {1..100}; do grep -qs "$1" "$2" && return; sleep 0.1; done; return 1; }
begun() { until_in first out || until_in first out || echo "$tool: the first job has not begun"; }
tidy() {
    kill -9 "$@" $(cat pids 2>/dev/null) 2>/dev/null
    [ $# = 0 ] || wait "$@" 2>/dev/null
    rm -f out judge l pids
    sleep 3.5
}
verdict() { until_in second out && grep second out || echo "second waits for the first job's end"; }

for tool in ${tools:-flock etcdctl sem redis-py redlock}; do
    case $tool in
    redis-py) /usr/bin/python3 -c 'import redis' 2>/dev/null ;;
    redlock) true ;;
    *) command -v $tool >/dev/null ;;
    esac || { echo "$tool: not installed"; continue; }

    (with $tool $server $etcd ./job first 15 >>out 2>/dev/null) & first=$!
    begun
    kill -9 $first
    (with $tool $server $etcd ./job second 0 >>out 2>/dev/null) & second=$!
    echo "$tool, killed: $(verdict)"
    tidy $first $second

    (with $tool $server $etcd ./job first 15 >>out 2>/dev/null) & first=$!
    begun
    (with $tool $server $etcd ./job second 0 >>out 2>/dev/null) & second=$!
    echo "$tool, a job of 15 s: $(verdict)"
    tidy $first $second

    case $tool in etcdctl | redis-py | redlock)
        socat TCP-LISTEN:$relay,fork,reuseaddr TCP:127.0.0.1:$server & one=$!
        socat TCP-LISTEN:$etcd_relay,fork,reuseaddr TCP:127.0.0.1:$etcd & other=$!
        sleep 0.5
        (with $tool $relay $etcd_relay ./job first 15 >>out 2>/dev/null) & first=$!
        begun
        kill -STOP $one $other # else the client may connect anew between the two kills
        kill -9 $(pgrep -P $one) $(pgrep -P $other) $one $other
        (with $tool $server $etcd ./job second 0 >>out 2>/dev/null) & second=$!
        echo "$tool, cut off: $(verdict)"
        tidy $first $second
        ;;
    esac

    (with $tool $server $etcd ./job first 3 >>out 2>/dev/null) &
    begun
    waiters=()
    for i in {1..10}; do
        (with $tool $server $etcd ./job "$i" 0 >>order 2>/dev/null) & waiters+=($!)
        sleep 0.25
    done
    wait "${waiters[@]}"
    echo "$tool, ten waiters: $(cut -d' ' -f1 order | tr '\n' ' ')"
    rm -f order
    tidy
done
