// The roles of the benchmark for redlock on ioredis; see ../roles/src/role.rs.
'use strict';

const fs = require('fs');
const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const TTL = 30000;

const say = (...words) => fs.writeSync(1, words.join(' ') + '\n');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => process.hrtime.bigint();
const seconds = (since) => Number(now() - since) / 1e9;

const input = readline.createInterface({ input: process.stdin });
const lines = input[Symbol.asyncIterator]();
const readLine = async () => (await lines.next()).value || '';
const ready = () => {
  say('ready');
  return readLine();
};

// A client of its own.
class Locks {
  constructor(url) {
    const hosts = url.split('redis+quorum://')[1];
    const urls = hosts ? hosts.split(',').map((host) => `redis://${host}/`) : [url];
    const nodes = urls.map((url) => new Redis(url));
    this.redis = nodes[0];
    this.trying = new Redlock(nodes, { retryCount: 0 });
    this.waiting = new Redlock(nodes, { retryCount: -1 });
  }

  attempt(key) {
    return this.trying.lock(key, TTL).catch((error) => {
      if (error.name === 'LockError') return null;
      throw error;
    });
  }

  wait(key) {
    return this.waiting.lock(key, TTL);
  }

  async pair(key) {
    const lock = await this.attempt(key);
    await lock.unlock();
  }
}

async function repeat(milliseconds, batch, once) {
  const start = now();
  let times = 0;
  while (seconds(start) < milliseconds / 1000) {
    for (let i = 0; i < batch; i++) await once();
    times += batch;
  }
  say('time', seconds(start) / Math.max(times, 1));
  say('times', times);
}

async function pair(url, milliseconds) {
  const locks = new Locks(url);
  for (let i = 0; i < 200; i++) await locks.pair('pair');
  await ready();
  await repeat(milliseconds, 20, () => locks.pair('pair'));
}

async function throughput(url, tasks, milliseconds) {
  const locks = new Locks(url);
  const run = async (length) => {
    const start = now();
    let pairs = 0;
    const work = async (task) => {
      while (seconds(start) < length) {
        await locks.pair(`throughput-${task}`);
        pairs++;
      }
    };
    await Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));
    return pairs / seconds(start);
  };
  await run(0.1);
  await ready();
  say('rate', await run(milliseconds / 1000));
}

async function queue(url, key, clients, tasks, body, pace, path) {
  const last = fs.openSync(path, 'r+');
  const all = Array.from({ length: clients }, () => new Locks(url));
  for (const locks of all) await locks.redis.ping();
  const end = BigInt((await ready()).replace('go ', ''));
  const findings = [];
  const waits = new Map();
  let over = false;
  const turns = async (locks, task) => {
    for (;;) {
      const asked = now();
      waits.set(task, asked);
      const held = await locks.wait(key);
      const entered = now();
      if (over) return;
      waits.delete(task);
      const stamp = Buffer.alloc(8);
      stamp.writeBigUInt64LE(entered);
      fs.writeSync(last, stamp, 0, 8, 0);
      if (Number(body) > 0) await sleep(Number(body));
      else await new Promise(setImmediate);
      const left = now();
      if (over) return;
      findings.push(['turn', task, asked, entered, left]);
      await held.unlock();
      while (pace !== 'at-once' && !over) {
        await sleep(1);
        const seen = Buffer.alloc(8);
        fs.readSync(last, seen, 0, 8, 0);
        if (!seen.equals(stamp)) break;
      }
    }
  };
  all.forEach((locks, client) => {
    for (let task = 0; task < tasks; task++) {
      turns(locks, client * tasks + task).catch((error) => {
        console.error(error);
        process.exit(1);
      });
    }
  });
  await sleep(Number(end - now()) / 1e6);
  over = true;
  for (const [task, asked] of waits) findings.push(['waits', task, now() - asked]);
  for (const finding of findings) say(...finding);
}

async function storm(url, key, milliseconds, tasks) {
  const locks = new Locks(url);
  const run = async () => {
    const held = await Promise.all(Array.from({ length: tasks }, () => locks.attempt(key)));
    if (held.some((lock) => lock)) throw new Error('it is held');
  };
  await run();
  await ready();
  await repeat(milliseconds, 1, run);
}

async function own(url, key, milliseconds) {
  const locks = new Locks(url);
  const refused = async () => {
    if (await locks.attempt(key)) throw new Error('it is held');
  };
  if (!(await locks.attempt(key))) throw new Error('a free key');
  await refused();
  await ready();
  await repeat(milliseconds, 50, refused);
}

async function probe(url) {
  const [one, two] = [new Locks(url), new Locks(url)];
  await ready();
  const held = await one.attempt('probe');
  say('refuses', (await two.attempt('probe')) ? 0 : 1);
  await one.redis.set('probe', 'another', 'PX', 60000);
  await held.unlock().catch(() => {});
  say('spares', (await one.redis.get('probe')) === 'another' ? 1 : 0);
}

// A run that hangs ends, and is told as failed.
setTimeout(() => process.exit(1), 300000).unref();

const roles = { pair, throughput, queue, storm, own, probe };
const [role, , url, ...words] = process.argv.slice(2);
roles[role](url, ...words.map((word) => (/^\d+$/.test(word) ? Number(word) : word)))
  .then(async () => {
    say('done');
    await readLine();
    process.exit(0);
  })
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
