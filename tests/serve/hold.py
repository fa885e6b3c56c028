"""A client that holds ten locks. For each line of input it acquires them, and then says when it knew of the loss."""
import sys

import quorate

client = quorate.Client(sys.argv[1], name=sys.argv[2])
locks = ["%s-%d" % (sys.argv[2], number) for number in range(10)]


def say(word):
    print(word, round(quorate._now() * 1e6), flush=True)


say("ready")
for _ in sys.stdin:
    lease = client.lease(*locks, wait=120)
    say("held")
    lease.step_down.wait()
    say("warned")
    lease.lost.wait()
    say("lost")
