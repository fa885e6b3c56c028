// Measures node's `redlock`, as the benchmark measures its other rivals:
//
//   node node-redlock.cjs redlock|redlock4 TASKS SECONDS URL...
//
// Each task acquires and releases a lock of its own. Prints one line of JSON: the cycles, the failed attempts, and
// two quantiles of the time of an acquire, in milliseconds. The settings are those of the library.
'use strict';

const Redis = require('ioredis');

const [library, tasks, seconds, ...urls] = process.argv.slice(2);
const TTL = 10000;
const WARM = 200;
const module_ = require(library);
const Redlock = module_.default ?? module_;
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock(clients);
// Version 5 has `acquire`, which takes a list. Version 4 has `lock`, which takes a name.
const acquire = (key) => (redlock.acquire ? redlock.acquire([key], TTL) : redlock.lock(key, TTL));
const release = (lock) => (lock.release ?? lock.unlock).call(lock);

async function task(key, until, took) {
  let failed = 0;
  while (performance.now() < until) {
    const began = performance.now();
    try {
      const lock = await acquire(key);
      took.push(performance.now() - began);
      await release(lock);
    } catch {
      failed += 1;
    }
  }
  return failed;
}

async function round(ms) {
  const took = [];
  const began = performance.now();
  const all = Array.from({ length: Number(tasks) }, (_, n) => task(`node-${n}`, began + ms, took));
  const failed = (await Promise.all(all)).reduce((sum, one) => sum + one, 0);
  return { took, failed, ms: performance.now() - began };
}

async function main() {
  redlock.on('error', () => {});
  await round(WARM);
  const { took, failed, ms } = await round(Number(seconds) * 1000);
  took.sort((a, b) => a - b);
  const quantile = (share) => took[Math.min(took.length - 1, Math.floor(took.length * share))] ?? 0;
  const cycles_a_second = (took.length / ms) * 1000;
  console.log(JSON.stringify({ cycles_a_second, failed, p50: quantile(0.5), p99: quantile(0.99) }));
  clients.forEach((client) => client.disconnect());
}

main();
