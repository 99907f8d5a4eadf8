"""The roles of the benchmark for the asyncio Lock of redis-py; see ../roles/src/role.rs."""

import asyncio
import os
import signal
import sys
import time

from redis.asyncio import Redis
from redis.exceptions import LockError

TTL = 30


def say(*words):
    print(*words, flush=True)


def ready():
    say("ready")
    return sys.stdin.readline().strip()


class Locks:
    """A client of its own."""

    def __init__(self, url):
        # It takes a connection for each command that is on its way.
        self.redis = Redis.from_url(url, max_connections=2_000)

    async def attempt(self, key):
        lock = self.redis.lock(key, timeout=TTL)
        return lock if await lock.acquire(blocking=False) else None

    async def wait(self, key):
        lock = self.redis.lock(key, timeout=TTL)
        await lock.acquire()
        return lock

    async def pair(self, key):
        lock = await self.attempt(key)
        await lock.release()


async def repeat(milliseconds, batch, once):
    start = time.perf_counter()
    times = 0
    while time.perf_counter() - start < int(milliseconds) / 1000:
        for _ in range(batch):
            await once()
        times += batch
    say("time", (time.perf_counter() - start) / max(times, 1))
    say("times", times)


async def pair(url, milliseconds):
    locks = Locks(url)
    for _ in range(200):
        await locks.pair("pair")
    ready()
    await repeat(milliseconds, 20, lambda: locks.pair("pair"))


async def throughput(url, tasks, milliseconds):
    locks = Locks(url)

    async def work(task, end):
        pairs = 0
        while time.perf_counter() < end:
            await locks.pair(f"throughput-{task}")
            pairs += 1
        return pairs

    async def run(length):
        end = time.perf_counter() + length
        return sum(await asyncio.gather(*(work(task, end) for task in range(int(tasks)))))

    await run(0.1)
    ready()
    start = time.perf_counter()
    pairs = await run(int(milliseconds) / 1000)
    say("rate", pairs / (time.perf_counter() - start))


async def queue(url, key, clients, tasks, body, pace, path):
    body = int(body) / 1000
    last = os.open(path, os.O_RDWR)
    all_locks = [Locks(url) for _ in range(int(clients))]
    for locks in all_locks:
        await locks.redis.ping()
    end = int(ready().removeprefix("go "))
    findings = []
    over = False

    async def turns(locks, task):
        while not over:
            asked = time.monotonic_ns()
            try:
                held = await locks.wait(key)
            except asyncio.CancelledError:
                findings.append(("waits", task, time.monotonic_ns() - asked))
                raise
            if over:
                return
            entered = time.monotonic_ns()
            stamp = entered.to_bytes(8, "little")
            os.pwrite(last, stamp, 0)
            await asyncio.sleep(body)
            left = time.monotonic_ns()
            findings.append(("turn", task, asked, entered, left))
            await held.release()
            while pace != "at-once" and not over:
                await asyncio.sleep(0.001)
                if os.pread(last, 8, 0) != stamp:
                    break

    running = [
        asyncio.create_task(turns(locks, client * int(tasks) + task))
        for client, locks in enumerate(all_locks)
        for task in range(int(tasks))
    ]
    await asyncio.wait(running, timeout=(end - time.monotonic_ns()) / 1e9)
    over = True
    for task in running:
        task.cancel()
    # One that is cancelled in the middle of a command may not notice.
    await asyncio.wait(running, timeout=1)
    for finding in findings:
        say(*finding)


async def storm(url, key, milliseconds, tasks):
    locks = Locks(url)

    async def run():
        held = await asyncio.gather(*(locks.attempt(key) for _ in range(int(tasks))))
        assert not any(held), "it is held"

    await run()
    ready()
    await repeat(milliseconds, 1, run)


async def own(url, key, milliseconds):
    locks = Locks(url)
    assert await locks.attempt(key), "a free key"

    async def refused():
        assert not await locks.attempt(key), "it is held"

    await refused()
    ready()
    await repeat(milliseconds, 50, refused)


async def probe(url):
    one, two = Locks(url), Locks(url)
    ready()
    held = await one.attempt("probe")
    say("refuses", int(await two.attempt("probe") is None))
    await one.redis.set("probe", "another", px=60_000)
    try:
        await held.release()
    except LockError:
        pass
    say("spares", int(await one.redis.get("probe") == b"another"))


def main():
    # A run that hangs ends, and is told as failed.
    signal.alarm(300)
    role, _, url, *words = sys.argv[1:]
    roles = {
        "pair": pair,
        "throughput": throughput,
        "queue": queue,
        "storm": storm,
        "own": own,
        "probe": probe,
    }
    asyncio.run(roles[role](url, *words))
    say("done")
    sys.stdin.readline()


main()
