# redis-py's Lock, driven by lines from rival.rs: rival.py SOCKET KEY SECONDS. Each line names a method of the lock; the
# answer is the method's result, or the error.
import sys

import redis

socket, key, seconds = sys.argv[1:]
client = redis.Redis(unix_socket_path=socket, socket_timeout=10)
lock = client.lock(key, timeout=float(seconds), blocking=False)
for line in sys.stdin:
    try:
        print(getattr(lock, line.strip())(), flush=True)
    except redis.RedisError as error:
        print(type(error).__name__, flush=True)
