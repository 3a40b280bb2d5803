import assert from "node:assert/strict";
import { test } from "node:test";
import { checksum, crc32, digest, sumOfBytes, type Summed } from "../src/checksum.js";
import { fromRuns, toRuns } from "../src/ids.js";
import { fromText, parseType, toText } from "../src/values.js";

const documented: Summed = {
  rowId: 7n,
  visibleFrom: 1_000_000n,
  visibleUntil: null,
  sortKey: new Uint8Array(),
  values: ["IBM", 184.5, "-12.50", null],
};
const types = ["TEXT", "DOUBLE", "DECIMAL(10,2)", "BIGINT"].map(parseType);

function hex(content: Uint8Array): string {
  return Buffer.from(content).toString("hex");
}

test("the documented checksum", () => {
  assert.equal(checksum(documented, types), 0x69e3a7265e71e899n);
});

test("the documented digests", () => {
  assert.equal(hex(digest([7n])), "dda1a1b5cb045ff70d21b083019afbfb");
  assert.equal(hex(digest([8n, 7n])), "13d836a57c56b5951ddb4013bbc0e5f7");
  assert.equal(hex(digest([])), "0".repeat(32));
});

test("the documented checksum of a request", () => {
  assert.equal(crc32(Buffer.from("123456789")), 0xcbf43926);
});

test("every field counts in the checksum", () => {
  const others: Partial<Summed>[] = [
    { rowId: 8n },
    { visibleFrom: null },
    { visibleUntil: 0n },
    { sortKey: new Uint8Array([0]) },
    { values: ["IBN", 184.5, "-12.50", null] },
    { values: ["IBM", -184.5, "-12.50", null] },
    { values: ["IBM", 184.5, "12.50", null] },
    { values: ["IBM", 184.5, "-12.50", 0n] },
  ];
  const sums = others.map((other) => checksum({ ...documented, ...other }, types));
  assert.equal(new Set([...sums, checksum(documented, types)]).size, others.length + 1);
});

test("zero and minus zero differ, NaN is one", () => {
  const [double] = [parseType("DOUBLE")];
  const of = (value: number) => checksum({ ...documented, values: [value] }, [double]);
  assert.notEqual(of(0), of(-0));
  assert.equal(of(NaN), of(-NaN));
});

test("a text is padded with zeros, and its length told apart", () => {
  assert.equal(sumOfBytes(new Uint8Array([1])), sumOfBytes(new Uint8Array([1, 0])));
  assert.equal(sumOfBytes(new Uint8Array()), 0n);
});

test("runs are how many ids to skip and how many to take", () => {
  assert.deepEqual(toRuns([9n, 3n, 4n]), [3n, 2n, 4n, 1n]);
  assert.deepEqual(fromRuns([3n, 2n, 4n, 1n]), [3n, 4n, 9n]);
  for (const ids of [[], [0n], [0n, 1n, 2n], [2n ** 62n, 2n ** 63n - 1n]]) {
    assert.deepEqual(fromRuns(toRuns(ids)), ids);
  }
});

test("values survive as text", () => {
  const values: [string, string | boolean | number | bigint | null][] = [
    ["BOOLEAN", true],
    ["BIGINT", -(2n ** 63n)],
    ["DOUBLE", -0],
    ["DOUBLE", NaN],
    ["DOUBLE", -Infinity],
    ["DOUBLE", 5e-324],
    ["DECIMAL(38,10)", "-1234567890123456789012345678.0123456789"],
    ["TEXT", "🜁 \u0000 \"\n"],
    ["TIMESTAMP", -1n],
    ["DATE", "0001-01-01"],
    ["BIGINT", null],
  ];
  for (const [type, value] of values) {
    assert.ok(Object.is(fromText(toText(value), parseType(type)), value), type);
  }
});
