"""Measures pottery's Redlock: threads that acquire and release locks of their own. Prints JSON."""
import json
import sys
import threading
import time

from pottery import Redlock
from redis import Redis

tasks, seconds, urls = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
until = time.monotonic() + seconds
acquires, failed = [], [0]


def work(number):
    masters = {Redis.from_url(url) for url in urls}
    while time.monotonic() < until:
        lock = Redlock(key="bench-%d" % number, masters=masters, auto_release_time=10)
        began = time.monotonic()
        if lock.acquire(blocking=False):
            acquires.append((time.monotonic() - began) * 1e3)
            lock.release()
        else:
            failed[0] += 1


threads = [threading.Thread(target=work, args=(number,)) for number in range(tasks)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
acquires.sort()
at = lambda share: acquires[min(len(acquires) - 1, int(len(acquires) * share))] if acquires else 0.0
print(json.dumps({"cycles_a_second": len(acquires) / seconds, "failed": failed[0], "p50": at(0.5), "p99": at(0.99)}))
