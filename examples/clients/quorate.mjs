// Leases of a quorum with fencing tokens, from a `quorate serve` beside this program.
//
// One file without dependencies, for Node.js 20 or later: copy it into your project.
//
//     import { Client } from "./quorate.mjs";
//
//     const client = new Client({ address: "unix:/run/quorate/quorate.sock" });
//     await client.withLease("nightly-report", { wait: 30_000 }, async (lease, signal) => {
//         await fetch(url, { signal, headers: { "Fencing-Token": lease.fencingToken() } });
//     });
//
// or, where the language has it (Node.js 24), `await using lease = await client.lease("nightly-report")`.
//
// Requests in the background keep the lease. `signal` is aborted, with a `LeaseLost`, when the lease has ended or is about to.
// If the program dies or hangs, the lease ends by itself. `lease.fencingToken()` and `lease.check()` compare the clocks, so they
// also notice that the event loop was blocked. Let the target of each write refuse a token that is smaller than one that it has
// seen: a program may be paused between the check and the write.

import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

/** The longest wait of one request, in milliseconds. */
const WAIT_MAX = 30_000;
/** The longest wait for an answer that is due, in milliseconds. */
const ANSWER = 10_000;

/** The request failed. `status` is that of HTTP, and the message has the reason and the fix. */
export class Failed extends Error {
    constructor(status, document) {
        super(document.error ?? "no reason given");
        this.name = new.target.name;
        this.status = status;
        this.document = document;
    }
}

/** Another client holds the lock `lock`, for as long as the request waited. `holder` is the worker that holds it, or null. */
export class Held extends Failed {
    constructor(status, document) {
        super(status, document);
        this.lock = document.lock;
        this.holder = document.holder;
    }
}

/** The lease has ended, or is about to: stop the work. */
export class LeaseLost extends Error {
    constructor(message) {
        super(message);
        this.name = "LeaseLost";
    }
}

/** A moment, on the clock that never steps and on the one that also runs while the machine sleeps. */
const now = () => [performance.now(), Date.now()];
/** The milliseconds since a moment: the longer of the two, so that neither a step nor a sleep hides a pause. */
const since = ([steady, wall]) => Math.max(performance.now() - steady, Date.now() - wall);

/** The daemon at `address`: `unix:PATH`, or `127.0.0.1:PORT` with the file of a token. */
export class Client {
    #address;
    #tokenFile;
    #name;

    constructor({ address = "unix:/run/quorate/quorate.sock", tokenFile, name } = {}) {
        this.#address = address;
        this.#tokenFile = tokenFile;
        this.#name = name;
    }

    /**
     * Acquires one lock or all of a list, or throws `Held` after `wait` milliseconds. `ttl` is the longest time for which a
     * crash of the daemon blocks others, and `keep` that for which a hang of this program does; both in milliseconds. A `shared`
     * lease is a reader's, and has no token. `signal` ends the wait.
     */
    async lease(locks, { wait = 0, ttl, keep, shared = false, signal } = {}) {
        const asked = { locks: [locks].flat(), shared, ...this.#options(ttl, keep) };
        const began = now();
        for (;;) {
            const left = Math.max(0, Math.min(wait - since(began), WAIT_MAX));
            const sent = now();
            const body = { ...asked, wait: `${Math.round(left)}ms` };
            const [status, document] = await this.request("POST", "/api/v1/leases", { body, wait: left, signal });
            if (status === 200) return new Lease(this, document, sent);
            if (status !== 409) throw new Failed(status, document);
            if (since(began) >= wait) throw new Held(status, document);
        }
    }

    /** Runs `work(lease, lease.signal)` under a lease, and releases it. Throws `LeaseLost` if the lease ended before the work. */
    async withLease(locks, options, work) {
        const lease = await this.lease(locks, options);
        let done;
        try {
            done = await work(lease, lease.signal);
            lease.check();
        } finally {
            await lease.release();
        }
        return done;
    }

    /** Claims those of `messages` that are free, and that no worker has completed. */
    async claim(set, messages, { ttl, keep, retention, maxAttempts } = {}) {
        const body = { messages, ...this.#options(ttl, keep) };
        if (retention !== undefined) body.retention = `${retention}ms`;
        if (maxAttempts !== undefined) body.max_attempts = maxAttempts;
        const sent = now();
        const [status, document] = await this.request("POST", `/api/v1/claims/${encodeURIComponent(set)}`, { body });
        if (status !== 200) throw new Failed(status, document);
        return new Claims(this, document, sent);
    }

    #options(ttl, keep) {
        const options = {};
        if (ttl !== undefined) options.ttl = `${ttl}ms`;
        if (keep !== undefined) options.keep = `${keep}ms`;
        if (this.#name !== undefined) options.client = this.#name;
        return options;
    }

    /** Sends one request. Returns the status and the document. */
    request(method, path, { body, wait = 0, timeout = wait + ANSWER, signal, background = false } = {}) {
        const unix = this.#address.startsWith("unix:");
        const [host, port] = this.#address.split(/:(?=\d+$)/);
        const to = unix ? { socketPath: this.#address.slice("unix:".length) } : { host, port };
        const headers = { host: "localhost", connection: "close" };
        if (this.#tokenFile) headers.authorization = `Bearer ${readFileSync(this.#tokenFile, "utf8").trim()}`;
        const limit = AbortSignal.timeout(Math.max(1, Math.round(timeout)));
        const ends = signal ? AbortSignal.any([signal, limit]) : limit;
        return new Promise((resolve, reject) => {
            const sent = httpRequest({ ...to, method, path, headers, agent: false, signal: ends }, (answer) => {
                let text = "";
                answer.setEncoding("utf8");
                answer.on("data", (part) => (text += part));
                answer.on("error", reject);
                answer.on("end", () => {
                    try {
                        resolve([answer.statusCode, JSON.parse(text)]);
                    } catch (error) {
                        reject(error);
                    }
                });
            });
            sent.on("error", reject);
            // A lease does not keep a program running that has nothing else to do.
            if (background) sent.on("socket", (socket) => socket.unref());
            sent.end(body === undefined ? undefined : JSON.stringify(body));
        });
    }
}

/** A lease that is held. */
export class Lease {
    #client;
    #path;
    #state;
    #keep;
    #grace;
    #known;
    #lost = new AbortController();
    #why;
    #released = false;
    #timer;

    constructor(client, document, sent) {
        this.#client = client;
        this.#path = `/api/v1/leases/${document.id}`;
        this.#state = document.state;
        this.#keep = document.keep_ms;
        this.#grace = document.ttl_ms / 5;
        this.#known = { sent, remaining: document.remaining_ms };
        /** The fencing token of the first lock; null for a reader's lease. Prefer `fencingToken()`, which checks the lease. */
        this.token = document.token;
        /** The fencing token of each lock. */
        this.tokens = Object.fromEntries(document.holds.map(({ name, token }) => [name, token]));
        this.#watchTime();
        this.#keepIt();
    }

    /** The path of the lease in the API. */
    get path() {
        return this.#path;
    }

    /** Aborted when the work should finish: the lease ends soon, or has ended. */
    get signal() {
        return this.#lost.signal;
    }

    /** The milliseconds for which the work may go on if no further answer arrives. */
    remaining() {
        if (this.#why !== undefined || this.#released) return 0;
        return Math.max(0, this.#known.remaining - since(this.#known.sent));
    }

    /** Throws `LeaseLost` if the lease has ended. */
    check() {
        if (this.remaining() > 0) return;
        throw new LeaseLost(this.#why ?? (this.#released ? "it was released" : "its time is over"));
    }

    /** Returns the token for the next write, or throws `LeaseLost`. */
    fencingToken() {
        this.check();
        return this.token;
    }

    /** Ends the lease. What still uses it must have stopped. */
    async release() {
        if (this.#released) return;
        this.#released = true;
        clearTimeout(this.#timer);
        if (this.#why !== undefined) return;
        // If the daemon does not answer, the lease ends by itself.
        await this.#client.request("DELETE", this.#path).catch(() => {});
    }

    async [Symbol.asyncDispose]() {
        await this.release();
    }

    /** Asks for the state until the lease has ended. Each request is a sign that this program runs. */
    async #keepIt() {
        const wait = Math.min(this.#keep / 8, WAIT_MAX);
        while (!this.#released && this.#why === undefined) {
            const sent = now();
            const path = `${this.#path}?wait=${Math.round(wait)}ms&seen=${this.#state}`;
            const timeout = Math.min(this.remaining() + 1, wait + ANSWER);
            const answer = await this.#client.request("GET", path, { timeout, background: true }).catch(() => undefined);
            if (this.#released || this.#why !== undefined) return;
            const [status, document] = answer ?? [];
            if (status === 404 || status === 410) return this.#end(document.error);
            if (status !== 200) {
                // A daemon that restarts answers that the lease is lost.
                await sleep(50, undefined, { ref: false });
                continue;
            }
            this.#state = document.state;
            if (document.remaining_ms - since(sent) > this.remaining()) {
                this.#known = { sent, remaining: document.remaining_ms };
            }
            if (document.state === "step_down") this.#abort("it ends soon");
            this.#watchTime();
        }
    }

    /** Ends the lease when its time is over, even if no answer arrives. The signal comes a grace period earlier. */
    #watchTime() {
        clearTimeout(this.#timer);
        if (this.#released || this.#why !== undefined) return;
        const left = this.remaining();
        if (left <= 0) return this.#end("the daemon did not answer in time");
        if (left <= this.#grace) this.#abort("the daemon does not answer");
        const next = left > this.#grace ? left - this.#grace : left;
        this.#timer = setTimeout(() => this.#watchTime(), Math.max(1, next));
        this.#timer.unref?.();
    }

    #end(why) {
        if (this.#released || this.#why !== undefined) return;
        this.#why = why ?? "it has ended";
        clearTimeout(this.#timer);
        this.#abort(this.#why);
    }

    #abort(why) {
        if (!this.#lost.signal.aborted) this.#lost.abort(new LeaseLost(why));
    }
}

/** The outcomes of a claim, and the messages that this program may handle. */
export class Claims {
    #client;

    constructor(client, document, sent) {
        this.#client = client;
        /** The outcome of each message, with `outcome`, `token`, `attempt`, `holder` and `result`. */
        this.outcomes = Object.fromEntries(document.messages.map((one) => [one.message, one]));
        /** The lease on the messages that were claimed; null if none was. */
        this.lease = document.lease ? new Lease(client, document.lease, sent) : null;
    }

    /** The messages to handle. */
    get claimed() {
        return Object.keys(this.outcomes).filter((name) => this.outcomes[name].outcome === "claimed");
    }

    /** Records messages as done. Throws `LeaseLost` if one of them could not be recorded. */
    async complete(messages, result = "") {
        await this.#end("complete", "completed", { messages: [messages].flat(), result });
    }

    /** Frees messages for other workers. */
    async abandon(messages) {
        await this.#end("abandon", "abandoned", { messages: [messages].flat() });
    }

    /** Abandons the messages that were not completed. */
    async release() {
        await this.lease?.release();
    }

    async [Symbol.asyncDispose]() {
        await this.release();
    }

    async #end(what, expected, body) {
        if (!this.lease) throw new LeaseLost("no message was claimed");
        this.lease.check();
        const [status, document] = await this.#client.request("POST", `${this.lease.path}/${what}`, { body });
        if (status === 404) throw new LeaseLost(document.error);
        if (status !== 200) throw new Failed(status, document);
        const other = document.messages.find((one) => one.outcome !== expected);
        if (other) throw new LeaseLost(`${other.message}: ${other.error}`);
    }
}
