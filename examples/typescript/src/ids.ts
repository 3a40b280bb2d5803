/** Sets of row ids on the wire: runs of how many to skip and how many to take. */

export function toRuns(ids: Iterable<bigint>): bigint[] {
  const runs: bigint[] = [];
  let next = 0n;
  for (const id of [...ids].sort(ascending)) {
    if (runs.length > 0 && id === next) runs[runs.length - 1]! += 1n;
    else runs.push(id - next, 1n);
    next = id + 1n;
  }
  return runs;
}

export function fromRuns(runs: readonly bigint[]): bigint[] {
  const ids: bigint[] = [];
  let next = 0n;
  for (let place = 0; place + 1 < runs.length; place += 2) {
    next += runs[place]!;
    for (const end = next + runs[place + 1]!; next < end; next++) ids.push(next);
  }
  return ids;
}

export function ascending(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
