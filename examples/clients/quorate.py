"""Leases of a quorum with fencing tokens, from a `quorate serve` beside this program.

One file without dependencies, for Python 3.8 or later: copy it into your project.

    import quorate

    client = quorate.Client("unix:/run/quorate/quorate.sock")
    with client.lease("nightly-report", wait=30) as lease:
        for row in rows:
            write(row, token=lease.fencing_token())  # raises LeaseLost once the lease has ended

A thread keeps the lease. If the program dies or hangs, the lease ends by itself. `lease.fencing_token()` and `lease.check()`
compare the clock, so they also notice a pause of the whole program. Let the target of each write refuse a token that is
smaller than one that it has seen: a program may be paused between the check and the write.
"""

import http.client
import json
import socket
import threading
import time
from urllib.parse import quote

__all__ = ["Client", "Claims", "Failed", "Held", "Lease", "LeaseLost"]

#: The longest wait of one request, in seconds.
_WAIT_MAX = 30.0
#: The longest wait for an answer that is due, in seconds.
_ANSWER = 10.0


class Failed(Exception):
    """The request failed. `status` is that of HTTP, and the text has the reason and the fix."""

    def __init__(self, status, document):
        super().__init__(document.get("error", "no reason given"))
        self.status = status
        self.document = document


class Held(Failed):
    """Another client holds the lock, for as long as the request waited."""

    @property
    def lock(self):
        return self.document.get("lock")

    @property
    def holder(self):
        """The worker that holds it, such as another daemon, or None."""
        return self.document.get("holder")


class LeaseLost(Exception):
    """The lease has ended: stop the work."""


def _now():
    """A clock that also runs while the machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _seconds(time_or_text):
    return time_or_text if isinstance(time_or_text, str) else "%dms" % round(time_or_text * 1000)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """The daemon at `address`: `unix:PATH`, or `127.0.0.1:PORT` with the file of a token. Threads may share it."""

    def __init__(self, address="unix:/run/quorate/quorate.sock", token_file=None, name=None):
        self._address = address
        self._token_file = token_file
        self._name = name

    def lease(self, *locks, wait=0.0, ttl=None, keep=None, shared=False):
        """Acquires all of `locks`, or raises `Held` after `wait` seconds.

        `ttl` is the longest time for which a crash of the daemon blocks others, and `keep` that for which a hang of this
        program does; both in seconds. A `shared` lease is a reader's, and has no token.
        """
        asked = {"locks": list(locks), "shared": shared, **self._options(ttl, keep)}
        end = _now() + wait
        while True:
            left = max(0.0, min(end - _now(), _WAIT_MAX))
            sent = _now()
            status, document = self._request("POST", "/api/v1/leases", {**asked, "wait": _seconds(left)}, left)
            if status == 200:
                return Lease(self, document, sent)
            if status != 409:
                raise Failed(status, document)
            if _now() >= end:
                raise Held(status, document)

    def claim(self, set, messages, ttl=None, keep=None, retention=None, max_attempts=None):
        """Claims those of `messages` that are free, and that no worker has completed."""
        asked = {"messages": list(messages), **self._options(ttl, keep)}
        if retention is not None:
            asked["retention"] = _seconds(retention)
        if max_attempts is not None:
            asked["max_attempts"] = max_attempts
        sent = _now()
        status, document = self._request("POST", "/api/v1/claims/" + quote(set, safe=""), asked)
        if status != 200:
            raise Failed(status, document)
        return Claims(self, document, sent)

    def _options(self, ttl, keep):
        given = {"ttl": ttl and _seconds(ttl), "keep": keep and _seconds(keep), "client": self._name}
        return {name: value for name, value in given.items() if value is not None}

    def _request(self, method, path, body=None, wait=0.0, timeout=None):
        timeout = wait + _ANSWER if timeout is None else timeout
        if self._address.startswith("unix:"):
            connection = _UnixConnection(self._address[len("unix:"):], timeout)
        else:
            connection = http.client.HTTPConnection(self._address, timeout=timeout)
        headers = {"Connection": "close"}
        if self._token_file is not None:
            with open(self._token_file) as file:
                headers["Authorization"] = "Bearer " + file.read().strip()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text)
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError("no answer of the daemon: %s" % error) from error
        finally:
            connection.close()


class Lease:
    """A lease that is held. As a context manager it is released at the end, and raises `LeaseLost` if it ended before."""

    def __init__(self, client, document, sent):
        self._client = client
        self._path = "/api/v1/leases/" + document["id"]
        self._lock = threading.Lock()
        self._state = document["state"]
        self._keep = document["keep_ms"] / 1000
        self._grace = document["ttl_ms"] / 5000
        self._until = sent + document["remaining_ms"] / 1000
        self._why = None
        self._released = False
        #: The fencing token of the first lock; None for a reader's lease. Prefer `fencing_token`, which checks the lease.
        self.token = document["token"]
        #: The fencing token of each lock.
        self.tokens = {held["name"]: held["token"] for held in document["holds"]}
        #: Set when the work should finish, because the lease ends soon or has ended.
        self.step_down = threading.Event()
        #: Set when the lease has ended before it was released.
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._keep_it, name="quorate-lease", daemon=True)
        self._thread.start()

    def remaining(self):
        """Returns for how many seconds the work may go on if no further answer arrives."""
        with self._lock:
            return 0.0 if self._why or self._released else max(0.0, self._until - _now())

    def check(self):
        """Raises `LeaseLost` if the lease has ended."""
        if self.remaining() <= 0.0:
            raise LeaseLost(self._why or ("it was released" if self._released else "its time is over"))

    def fencing_token(self):
        """Returns the token for the next write, or raises `LeaseLost`."""
        self.check()
        return self.token

    def release(self):
        """Ends the lease. What still uses it must have stopped."""
        with self._lock:
            if self._released:
                return
            self._released = True
        if not self._why:
            try:
                self._client._request("DELETE", self._path)
            except OSError:
                pass  # It ends by itself.

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        ended = self.remaining() <= 0.0
        self.release()
        if ended and kind is None:
            raise LeaseLost(self._why or "its time is over")

    def _keep_it(self):
        """Asks for the state until the lease has ended. Each request is a sign that this program runs."""
        wait = min(self._keep / 8, _WAIT_MAX)
        while not self._released:
            left = self._until - _now()
            if left <= 0.0:
                return self._end("the daemon did not answer in time")
            sent = _now()
            try:
                path = "%s?wait=%s&seen=%s" % (self._path, _seconds(wait), self._state)
                status, document = self._client._request("GET", path, timeout=max(0.01, min(left, wait + _ANSWER)))
            except OSError:
                if self._until - _now() < self._grace:
                    self.step_down.set()
                # A daemon that restarts answers that the lease is lost.
                self.lost.wait(min(0.05, max(0.0, self._until - _now())))
                continue
            if status in (404, 410):
                return self._end(document.get("error"))
            if status == 200:
                with self._lock:
                    self._state = document["state"]
                    self._until = max(self._until, sent + document["remaining_ms"] / 1000)
                if self._state == "step_down":
                    self.step_down.set()

    def _end(self, why):
        with self._lock:
            if self._released:
                return
            self._why = why or "it has ended"
        self.step_down.set()
        self.lost.set()


class Claims:
    """The outcomes of a claim, and the messages that this program may handle. As a context manager it abandons the rest."""

    def __init__(self, client, document, sent):
        self._client = client
        #: The outcome of each message, with `outcome`, `token`, `attempt`, `holder` and `result`.
        self.outcomes = {one["message"]: one for one in document["messages"]}
        #: The lease on the messages that were claimed; None if none was.
        self.lease = Lease(client, document["lease"], sent) if document["lease"] else None

    @property
    def claimed(self):
        """The messages to handle, each with its fencing token."""
        return {name: one["token"] for name, one in self.outcomes.items() if one["outcome"] == "claimed"}

    def complete(self, *messages, result=""):
        """Records messages as done. Raises `LeaseLost` if one of them could not be recorded."""
        self._end("complete", "completed", {"messages": list(messages), "result": result})

    def abandon(self, *messages):
        """Frees messages for other workers."""
        self._end("abandon", "abandoned", {"messages": list(messages)})

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.lease:
            self.lease.release()

    def _end(self, what, expected, body):
        if self.lease is None:
            raise LeaseLost("no message was claimed")
        self.lease.check()
        status, document = self._client._request("POST", self.lease._path + "/" + what, body)
        if status == 404:
            raise LeaseLost(document.get("error"))
        if status != 200:
            raise Failed(status, document)
        for one in document["messages"]:
            if one["outcome"] != expected:
                raise LeaseLost("%s: %s" % (one["message"], one["error"]))
