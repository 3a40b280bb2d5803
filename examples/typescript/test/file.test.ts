import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { checksum, digest } from "../src/checksum.js";
import { Copy, NO_REPAIR, type Row, type Shape } from "../src/copy.js";
import { load, read, save, type Kept } from "../src/file.js";
import { DigestOf, UpdatePattern } from "../src/generated/psoup/v1/psoup_pb.js";
import { parseType } from "../src/values.js";

const folder = mkdtempSync(join(tmpdir(), "psoup-copy-"));
const path = join(folder, "copy.jsonl");
after(() => rmSync(folder, { recursive: true }));

const registration = {
  address: "localhost:7181",
  tenant: "",
  handle: new Uint8Array(16).fill(7),
  key: "dear",
  sql: "SELECT symbol, price FROM trades",
};
const shape: Shape = {
  columns: [
    { name: "symbol", type: "TEXT" },
    { name: "price", type: "DOUBLE" },
  ],
  digestOf: DigestOf.UNSPECIFIED,
  slides: true,
  pattern: UpdatePattern.WKS,
};

function row(rowId: bigint, symbol: string | null, price: number): Row {
  const types = shape.columns.map((column) => parseType(column.type));
  const sortKey = new Uint8Array([1, Number(rowId)]);
  const made = { rowId, visibleFrom: -5n, visibleUntil: 900n, sortKey, values: [symbol, price] };
  return { ...made, checksum: checksum(made, types) };
}

function byId(rows: Row[]): Map<bigint, Row> {
  return new Map(rows.map((one) => [one.rowId, one]));
}

function example(): Kept {
  const rows = [row(3n, "IBM 🜁", -0), row(4n, null, NaN)];
  const end = {
    token: new Uint8Array([1, 2, 3]),
    now: 800n,
    rowCount: 2n,
    digest: digest(rows.map((one) => one.rowId)),
    goodUntil: null,
    leaseUntil: 5n,
  };
  const staged = {
    whole: false,
    shape: null,
    repair: NO_REPAIR,
    rows: byId([row(9n, "SAP", 1.5)]),
    removed: new Set([3n]),
    resume: new Uint8Array([9]),
  };
  return { registration, copy: new Copy(shape, end, byId(rows), staged) };
}

test("what was saved is loaded", () => {
  save(path, example());
  assert.deepEqual(load(path), example());
});

/** Whether the copy says itself that it is not as it was saved. */
function isNoticed(copy: Copy): boolean {
  if (copy.end === null) return true;
  const { resend, have } = copy.damage();
  return resend.length > 0 || have !== null;
}

test("no flipped bit goes unnoticed", () => {
  save(path, example());
  const content = readFileSync(path);
  const end = content.indexOf('["staged"');
  const first = content.indexOf("\n");
  let noticed = 0;
  for (let bit = 0; bit < 8 * end; bit++) {
    const damaged = Buffer.from(content);
    damaged[bit >> 3]! ^= 1 << (bit & 7);
    const text = damaged.toString("utf8");
    if (bit >> 3 <= first) assert.throws(() => read(text), /register again/);
    else if (isNoticed(read(text).copy)) noticed++;
    else assert.deepEqual(read(text).copy.rows, example().copy.rows, `bit ${bit}`);
  }
  assert.ok(noticed > 7 * (end - first));
});
