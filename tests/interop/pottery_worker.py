"""A worker that uses Python's `pottery`. It reads commands from standard input, one per line:

    python pottery_worker.py NAME JUDGE-URL URL...

The lock's key is `redlock:NAME`. The comment at the top of redlock.cjs describes its commands and its output.
"""

import logging
import random
import sys
import threading
import time

from pottery import Redlock, ReleaseUnlockedLock
from redis import Redis

name, judge_url, *urls = sys.argv[1:]
masters = {Redis.from_url(url) for url in urls}
judge = Redis.from_url(judge_url)
logging.disable(logging.CRITICAL)
held = None


def say(word):
    print(word, flush=True)


def new_lock(ms):
    return Redlock(key=name, masters=masters, auto_release_time=ms / 1000)


def contend(told):
    wins = 0
    while not told.is_set():
        lock = new_lock(5000)
        if not lock.acquire(blocking=False):
            time.sleep(random.uniform(0.01, 0.04))
            continue
        inside = judge.incr("inside")
        time.sleep(random.uniform(0.005, 0.015))
        if inside != 1 or judge.get("inside") != b"1":
            say("overlap")
        judge.hincrby("wins", "pottery", 1)
        judge.decr("inside")
        wins += 1
        try:
            lock.release()
        except ReleaseUnlockedLock:
            pass  # A key that the release does not reach expires by itself.
        time.sleep(random.uniform(0, 0.04))
    say(f"wins {wins}")


for master in masters:
    master.ping()
judge.ping()
say("ready")
contending = None
for line in sys.stdin:
    word, _, ms = line.strip().partition(" ")
    if word == "try":
        held = new_lock(int(ms))
        say("got" if held.acquire(blocking=False) else "no")
    elif word == "release":
        try:
            held.release()
            say("released")
        except ReleaseUnlockedLock:
            say("failed")
    elif word == "contend":
        told = threading.Event()
        contending = threading.Thread(target=contend, args=(told,))
        contending.start()
        say("contending")
    else:
        told.set()
        contending.join()
