// A worker that uses node's `redlock`. It reads commands from standard input, one per line:
//
//   node redlock.cjs redlock|redlock4 KEY JUDGE-URL URL...
//
//   try MS     makes one attempt with that TTL, and prints `got` or `no`
//   release    prints `released`, or `failed` if this worker held fewer than a majority of the keys
//   contend    acquires and releases the lock repeatedly until the next line, and then prints `wins N`. A separate
//              server, the judge, counts the current holders and the wins of each worker. If it counts two
//              holders at the same time, the worker prints `overlap`
'use strict';

const Redis = require('ioredis');
const readline = require('readline');

const [library, key, judgeUrl, ...urls] = process.argv.slice(2);
const module_ = require(library);
const Redlock = module_.default ?? module_;
const clients = urls.map((url) => new Redis(url, { maxRetriesPerRequest: 1 }));
const judge = new Redis(judgeUrl);
const once = new Redlock(clients, { retryCount: 0 });
const eager = new Redlock(clients, { retryCount: 1, retryDelay: 20, retryJitter: 20 });

const say = (word) => process.stdout.write(word + '\n');
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
// Version 5 has `acquire`, which takes a list. Version 4 has `lock`, which takes a name.
const acquire = (redlock, ttl) => (redlock.acquire ? redlock.acquire([key], ttl) : redlock.lock(key, ttl));
const release = (lock) => (lock.release ?? lock.unlock).call(lock);

let held;
let told = false;

async function contend() {
  let wins = 0;
  while (!told) {
    let lock;
    try {
      lock = await acquire(eager, 5000);
    } catch {
      continue;
    }
    const inside = await judge.incr('inside');
    await pause(5 + Math.random() * 10);
    if (inside !== 1 || (await judge.get('inside')) !== '1') say('overlap');
    await judge.hincrby('wins', library, 1);
    await judge.decr('inside');
    wins += 1;
    // A key that the release does not reach expires by itself.
    await release(lock).catch(() => {});
    await pause(Math.random() * 40);
  }
  say(`wins ${wins}`);
}

async function obey(line) {
  const [word, ms] = line.trim().split(' ');
  switch (word) {
    case 'try':
      held = await acquire(once, Number(ms)).catch(() => undefined);
      return say(held ? 'got' : 'no');
    case 'release':
      return say(await release(held).then(() => 'released', () => 'failed'));
    case 'contend':
      told = false;
      // The worker does not wait for this: the next line ends it.
      contend();
      return say('contending');
    default:
      told = true;
  }
}

Promise.all([...clients, judge].map((client) => client.ping())).then(async () => {
  say('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) await obey(line);
  process.exit(0);
});
