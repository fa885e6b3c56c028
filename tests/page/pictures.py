#!/usr/bin/env python3
"""Takes the pictures of the operator's page for the guide, of a group as an operator would have it.

    sudo python3 tests/page/pictures.py target/debug/quorate docs/guide/src/reference/page

It takes two minutes, and needs Linux, root, redis-server, chromium and chromedriver. The machines are namespaces that end with
the script. The picture of messages is taken by `tests/web` with UPDATE_PAGE_SHOTS=1, since only a service stores messages.
"""

import base64, json, os, signal, subprocess, sys, time, urllib.request
from datetime import datetime, timedelta, timezone

QUORATE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
SHOTS = [("overview", "/"), ("nodes", "/nodes"), ("jobs", "/jobs"), ("job", "/job?name=export-ledger"),
         ("leadership", "/leadership"), ("sign-in", "/sign-in")]
PAGE = "http://10.0.1.21:9640"
TOKEN = "a-token-of-an-operator"
CONFIG = """
nodes = ["redis://redis-1.shop", "redis://redis-2.shop", "redis://redis-3.shop"]
group = "shop"
max_ttl = "10s"
lease = { ttl = "5s" }
http = { read_token_file = "read-token", operate_token_file = "token" }
"""
WORK = "sleep 0.$(( $$ % 7 + 1 )); "
# Name, schedule, work, other keys, and the hours for which its runs are filled in.
JOBS = [
    ("charge-cards", "*/5 * * * *", WORK + "echo 41 cards charged", "", 2),
    ("export-ledger", "30 2 * * *", WORK + "echo 1284 entries read; case $QUORATE_TICK in TODAY*) echo 'upload: 507 Insufficient Storage' >&2; exit 1;; esac",
     'zone = "Europe/Kyiv"\n', 24 * 14),
    ("nightly-report", "0 3 * * *", WORK + "echo 61 pages written", 'zone = "Europe/Kyiv"\n', 24 * 14),
    ("prune-sessions", "15 * * * *", WORK, 'placement = "any-worker"\n', 18),
    ("rebuild-search", "0 */6 * * *", "sleep 1000", "", 0),
    ("send-digests", "0 8 * * 1-5", WORK, 'zone = "Europe/Kyiv"\n', 24 * 18),
    ("sync-inventory", "*/1 * * * *", WORK, "", 0),
    ("archive-invoices", "0 5 1 * *", WORK, "", 24 * 200),
]


def sh(command, **options):
    return subprocess.run(command, shell=True, check=True, **options)


def quorate(*arguments):
    command = [QUORATE, *arguments, "--config", "quorate.toml"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def until(done):
    give_up = time.monotonic() + 120
    while not done():
        assert time.monotonic() < give_up, "it takes too long"
        time.sleep(0.5)


def start(host):
    """Starts the daemon of a host. Its worker has the name of the host."""
    text = open("quorate.toml").read().replace("group =", f'worker = "{host}"\ngroup =')
    text = text.replace("http = {", f'http = {{ listen = "10.0.1.2{host[-1]}:9640",')
    with open(f"{host}.toml", "w") as file:
        file.write(text)
    return subprocess.Popen([QUORATE, "run", "--config", f"{host}.toml"], stderr=open(f"{host}.log", "a"))


def machines():
    """Starts the servers under names of their own."""
    sh("ip link set lo up; hostname ops")
    names = {f"10.0.1.1{i}": f"redis-{i}.shop" for i in (1, 2, 3)}
    with open("hosts", "w") as hosts:
        hosts.write("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for ip, name in names.items()))
    sh("mount --bind hosts /etc/hosts")
    for i in (1, 2, 3):
        sh(f"ip addr add 10.0.1.1{i}/32 dev lo; ip addr add 10.0.1.2{i}/32 dev lo")
        sh(f"redis-server --bind 10.0.1.1{i} --protected-mode no --save '' --daemonize yes", stdout=subprocess.DEVNULL)


def history():
    """Lets each host lead for a while, fills in the runs of the days before, and pauses one job."""
    now = datetime.now(timezone.utc)
    quorate("nodes", "trust")
    daemons = {host: start(host) for host in ("app-1", "app-2", "app-3")}
    leader = lambda: next((host for host in daemons if f"held by {host}" in quorate("status", "election/shop")), None)
    until(lambda: all(name in quorate("jobs", "list") for name, *_ in JOBS))
    for end in (signal.SIGTERM, signal.SIGKILL):
        host = leader()
        daemons[host].send_signal(end)
        daemons[host].wait()
        until(lambda: leader() not in (None, host))
        daemons[host] = start(host)
        time.sleep(15)
    for name, _, _, _, hours in JOBS:
        if hours:
            begin = (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
            quorate("jobs", "backfill", name, "--from", begin, "--until", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    quorate("jobs", "pause", "archive-invoices", "--reason", "stocktaking until 1 December")
    quorate("jobs", "trigger", "rebuild-search")
    time.sleep(75)


class Browser:
    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=9515"], stdout=subprocess.DEVNULL)
        time.sleep(2)
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options}}
        self.path = ""
        self.path = "/" + self.ask("", capabilities=capabilities)["sessionId"]

    def ask(self, path, **body):
        url = f"http://127.0.0.1:9515/session{self.path}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["value"]

    def cdp(self, command, **params):
        return self.ask("/goog/cdp/execute", cmd=command, params=params)

    def script(self, script):
        return self.ask("/execute/sync", script=script, args=[])

    def take(self, name, path, width, height, dark):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        self.ask("/url", url=PAGE + path)
        time.sleep(2)
        with open(f"{OUT}/{name}.png", "wb") as file:
            file.write(base64.b64decode(self.cdp("Page.captureScreenshot", format="png")["data"]))


def main():
    if "alone" not in sys.argv:
        alone = "unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc".split()
        sys.exit(subprocess.call([*alone, sys.executable, os.path.abspath(__file__), QUORATE, OUT, "alone"]))
    sh("mount -t tmpfs none /mnt")
    os.chdir("/mnt")
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    with open("quorate.toml", "w") as file:
        file.write(CONFIG)
        for name, schedule, work, keys, _ in JOBS:
            command = json.dumps(work.replace("TODAY", today))
            file.write(f'[[job]]\nname = "{name}"\nschedule = "{schedule}"\nkeep_output = "1KiB"\n{keys}shell = {command}\n')
    for name, token in (("token", TOKEN), ("read-token", "a-token-of-a-reader")):
        with open(name, "w") as file:
            file.write(token)
        os.chmod(name, 0o600)
    machines()
    history()
    browser = Browser()
    browser.take(*SHOTS[-1], 1280, 900, False)
    browser.script(f"document.querySelector('input[name=token]').value = '{TOKEN}'; document.querySelector('form').submit()")
    time.sleep(2)
    for name, path in SHOTS[:-1]:
        browser.take(name, path, 1280, 900, False)
    browser.take("overview-phone", "/", 390, 844, True)


main()
