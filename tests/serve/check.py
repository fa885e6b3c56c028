"""Uses examples/clients/quorate.py against a daemon. Prints each step that passed; an assertion ends it."""
import sys
import threading

import quorate

client = quorate.Client(sys.argv[1], token_file=sys.argv[2] if len(sys.argv) > 2 else None, name="python")


def step(name):
    print("passed:", name, flush=True)


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError("no %s" % kind.__name__)


with client.lease("p", ttl=3) as lease:
    token = lease.fencing_token()
    assert token > 0 and 0 < lease.remaining() <= 3 and lease.tokens == {"p": token}
    held = raises(quorate.Held, lambda: client.lease("p", wait=0.05))
    assert held.status == 409 and held.lock == "p" and held.holder, held.document
    # Longer than `keep`: the thread keeps it.
    assert not lease.lost.wait(3.5)
    assert lease.fencing_token() == token
raises(quorate.LeaseLost, lease.check)
step("a context manager")

first = client.lease("p")
threading.Timer(0.3, first.release).start()
with client.lease("p", wait=20) as second:
    assert second.token > first.token
step("a wait")

with client.lease("r", shared=True) as one, client.lease("r", shared=True):
    assert one.token is None
    raises(quorate.Held, lambda: client.lease("r"))
with client.lease("b", "a") as both:
    assert list(both.tokens) == ["b", "a"]
step("readers and many locks")

wrong = raises(quorate.Failed, lambda: client.lease("election/x"))
assert wrong.status == 400 and "keeps for itself" in str(wrong)
step("an error")

with client.claim("py", ["1", "2", "3"]) as claims:
    assert list(claims.claimed) == ["1", "2", "3"]
    other = client.claim("py", ["1"])
    assert other.outcomes["1"]["outcome"] == "in_progress" and other.lease is None
    claims.complete("1", "2", result="shipped")
    raises(quorate.LeaseLost, lambda: claims.complete("1"))
again = client.claim("py", ["1", "3"])
assert again.outcomes["1"]["result"] == "shipped" and list(again.claimed) == ["3"]
again.abandon("3")
step("messages")


def body():
    with client.lease("forced") as lease:
        print("holds: forced", flush=True)
        assert lease.lost.wait(20) and lease.step_down.is_set()


lost = raises(quorate.LeaseLost, body)
assert "operator" in str(lost), lost
step("a loss")
