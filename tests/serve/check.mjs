// Uses examples/clients/quorate.mjs against a daemon. Prints each step that passed; an assertion ends it.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const { Client, Failed, Held, LeaseLost } = await import(pathToFileURL(process.argv[2]));
const client = new Client({ address: process.argv[3], tokenFile: process.argv[4], name: "node" });
const step = (name) => console.log(`passed: ${name}`);

let ended;
await client.withLease("n", { ttl: 3_000 }, async (lease, signal) => {
    ended = lease;
    const token = lease.fencingToken();
    assert(token > 0 && lease.remaining() > 0 && lease.remaining() <= 3_000);
    await assert.rejects(client.lease("n", { wait: 50 }), (error) => {
        assert(error instanceof Held && error.status === 409 && error.lock === "n" && error.holder);
        return true;
    });
    // Longer than `keep`: requests in the background keep it.
    await sleep(3_500);
    assert(!signal.aborted);
    assert.equal(lease.fencingToken(), token);
});
assert.throws(() => ended.check(), LeaseLost);
step("a lease around work");

const first = await client.lease("n");
setTimeout(() => first.release(), 300);
const second = await client.lease("n", { wait: 20_000 });
assert(second.token > first.token);
await second[Symbol.asyncDispose]();
step("a wait");

const readers = [await client.lease("nr", { shared: true }), await client.lease("nr", { shared: true })];
assert.equal(readers[0].token, null);
await assert.rejects(client.lease("nr"), Held);
for (const reader of readers) await reader.release();
const both = await client.lease(["nb", "na"]);
assert.deepEqual(Object.keys(both.tokens), ["nb", "na"]);
await both.release();
step("readers and many locks");

await assert.rejects(client.lease("election/x"), (error) => {
    assert(error instanceof Failed && error.status === 400 && error.message.includes("keeps for itself"));
    return true;
});
step("an error");

const claims = await client.claim("node", ["1", "2", "3"]);
assert.deepEqual(claims.claimed, ["1", "2", "3"]);
const other = await client.claim("node", ["1"]);
assert(other.outcomes["1"].outcome === "in_progress" && other.lease === null);
await claims.complete(["1", "2"], "shipped");
await assert.rejects(claims.complete("1"), LeaseLost);
await claims.release();
const again = await client.claim("node", ["1", "3"]);
assert(again.outcomes["1"].result === "shipped");
assert.deepEqual(again.claimed, ["3"]);
await again.abandon("3");
step("messages");

await assert.rejects(
    client.withLease("forced", {}, async (lease, signal) => {
        console.log("holds: forced");
        await new Promise((resolve, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
            // A program that waits for its lease alone keeps running.
            setTimeout(resolve, 20_000).unref();
            setInterval(() => {}, 1_000);
        });
    }),
    (error) => error instanceof LeaseLost && error.message.includes("operator"),
);
step("a loss");
process.exit(0);
