/** Checksums of rows and the digest of a copy, as docs/reference/protocol.md defines them. */
import type { Type, Value } from "./values.js";

export interface Summed {
  readonly rowId: bigint;
  /** Microseconds since 1970; null where absent. */
  readonly visibleFrom: bigint | null;
  readonly visibleUntil: bigint | null;
  readonly sortKey: Uint8Array;
  readonly values: readonly Value[];
}

const STEP = 0x9e3779b97f4a7c15n;
const LANES = [STEP, 0xc2b2ae3d27d4eb4fn];
const SINCE_EVER = -(2n ** 63n);
const FOR_EVER = 2n ** 63n - 1n;
const NAN = 0x7ff8000000000000n;
const DAY = 86_400_000;

const factors: bigint[] = [];
const utf8 = new TextEncoder();

function u64(x: bigint): bigint {
  return BigInt.asUintN(64, x);
}

export function mix(x: bigint): bigint {
  x = u64((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n);
  x = u64((x ^ (x >> 27n)) * 0x94d049bb133111ebn);
  return x ^ (x >> 31n);
}

function factor(place: number): bigint {
  return (factors[place] ??= mix(u64(BigInt(place + 1) * STEP)) | 1n);
}

/** Of words of 32 bits. */
function sum(words: Iterable<number>): bigint {
  let total = 0n;
  let place = 0;
  for (const word of words) total = u64(total + factor(place++) * BigInt(word));
  return total;
}

export function sumOfBytes(content: Uint8Array): bigint {
  const padded = new DataView(new ArrayBuffer(Math.ceil(content.length / 4) * 4));
  new Uint8Array(padded.buffer).set(content);
  const words = [];
  for (let at = 0; at < padded.byteLength; at += 4) words.push(padded.getUint32(at, true));
  return sum(words);
}

export function checksum(row: Summed, types: readonly Type[]): bigint {
  const cells = [
    row.rowId,
    row.visibleFrom ?? SINCE_EVER,
    row.visibleUntil ?? FOR_EVER,
    BigInt(row.sortKey.length),
    sumOfBytes(row.sortKey),
    ...types.flatMap((type, place) => cellsOf(row.values[place] ?? null, type)),
  ];
  return sum(cells.flatMap(halves));
}

/** 16 bytes, whatever the order: of row ids or of checksums. */
export function digest(numbers: Iterable<bigint>): Uint8Array {
  const totals = LANES.map(() => 0n);
  for (const x of numbers) {
    LANES.forEach((lane, place) => (totals[place] = u64(totals[place]! + mix(u64(x) ^ lane))));
  }
  const content = new DataView(new ArrayBuffer(16));
  totals.forEach((total, place) => content.setBigUint64(8 * place, total, true));
  return new Uint8Array(content.buffer);
}

function halves(cell: bigint): [number, number] {
  const bits = u64(cell);
  return [Number(bits & 0xffffffffn), Number(bits >> 32n)];
}

function cellsOf(value: Value, type: Type): bigint[] {
  const wide = type.kind === "TEXT" || type.kind === "DECIMAL";
  if (value === null) return wide ? [0n, 0n, 0n] : [0n, 0n];
  switch (type.kind) {
    case "BOOLEAN":
      return [1n, value === true ? 1n : 0n];
    case "BIGINT":
    case "TIMESTAMP":
      return [1n, value as bigint];
    case "DOUBLE":
      return [1n, bitsOf(value as number)];
    case "DECIMAL":
      return [1n, ...wideHalves(unscaled(value as string, type.scale))];
    case "TEXT":
      return [1n, ...textCells(value as string)];
    case "DATE":
      return [1n, BigInt(Date.parse(`${value as string}T00:00:00Z`) / DAY)];
  }
}

function bitsOf(value: number): bigint {
  if (Number.isNaN(value)) return NAN;
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  return bits.getBigUint64(0);
}

function textCells(text: string): [bigint, bigint] {
  const content = utf8.encode(text);
  return [BigInt(content.length), sumOfBytes(content)];
}

/** The number times 10^scale. */
function unscaled(text: string, scale: number): bigint {
  const [whole = "", fraction = ""] = text.split(".");
  return BigInt(whole + fraction.padEnd(scale, "0"));
}

function wideHalves(number: bigint): [bigint, bigint] {
  const bits = BigInt.asUintN(128, number);
  return [u64(bits), bits >> 64n];
}

/** The CRC-32 of zlib, of requests as they are sent. */
export function crc32(bytes: Uint8Array): number {
  let rest = ~0;
  for (const byte of bytes) {
    rest ^= byte;
    for (let bit = 0; bit < 8; bit++) rest = (rest >>> 1) ^ (rest & 1 ? 0xedb88320 : 0);
  }
  return ~rest >>> 0;
}
