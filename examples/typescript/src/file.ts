/**
 * A registration and its copy in one file of JSON lines, replaced as a whole and never in part.
 *
 * What is not a row is sealed with a hash; a row has its checksum. A line that can't be read is
 * left out: then the copy is unsound, and the next sync mends it.
 */
import { createHash } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { Copy, type End, type Repair, type Row, type Shape, type Staged } from "./copy.js";
import { fromText, parseType, toText, type Type } from "./values.js";

export interface Registration {
  readonly address: string;
  readonly tenant: string;
  readonly handle: Uint8Array;
  readonly key: string;
  readonly sql: string;
}

export interface Kept {
  readonly registration: Registration;
  readonly copy: Copy;
}

type Json = Record<string, unknown>;
type RowLine = [string, string | null, string | null, string, string, ...(string | null)[]];

export function save(path: string, { registration, copy }: Kept): void {
  const lines = [sealed("registration", { ...registration, handle: hex(registration.handle) })];
  if (copy.shape && copy.end) lines.push(sealed("copy", { shape: copy.shape, end: flat(copy.end) }));
  for (const row of copy.rows.values()) lines.push(JSON.stringify(["row", ...rowLine(row)]));
  if (copy.staged?.resume) {
    lines.push(sealed("staged", stagedHead(copy.staged)));
    for (const row of copy.staged.rows.values()) {
      lines.push(JSON.stringify(["staged row", ...rowLine(row)]));
    }
  }
  replace(path, lines.join("\n") + "\n");
}

/** Throws where the file does not say what it is a copy of. */
export function load(path: string): Kept {
  return read(readFileSync(path, "utf8"));
}

export function read(content: string): Kept {
  const lines = content.split("\n").map(parsed);
  const registration = opened(lines, "registration");
  if (registration === null) {
    throw new Error("the file is damaged at its beginning: register again, with the same key");
  }
  const handle = unhex(registration.handle as string);
  return { registration: { ...registration, handle } as Registration, copy: copyOf(lines) };
}

function copyOf(lines: unknown[][]): Copy {
  const head = opened(lines, "copy") as { shape: Shape; end: Json } | null;
  const staged = opened(lines, "staged");
  const copy = head ? new Copy(head.shape, unflat(head.end)) : new Copy();
  if (head) copy.rows = rowsOf(lines, "row", head.shape);
  if (staged) copy.staged = stagedOf(lines, staged, copy.shape);
  return copy;
}

// ---- lines

function sealed(name: string, content: Json): string {
  return JSON.stringify([name, seal(content), content]);
}

function opened(lines: unknown[][], name: string): Json | null {
  const line = lines.find((one) => one[0] === name);
  const content = line?.[2] as Json | undefined;
  return content && seal(content) === line?.[1] ? content : null;
}

function seal(content: Json): string {
  return createHash("sha256").update(JSON.stringify(content)).digest("hex");
}

function parsed(line: string): unknown[] {
  try {
    const found: unknown = JSON.parse(line);
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

// ---- rows

function rowLine(row: Row): RowLine {
  const interval = [toText(row.visibleFrom), toText(row.visibleUntil)] as const;
  const head = [String(row.rowId), ...interval, hex(row.sortKey), String(row.checksum)] as const;
  return [...head, ...row.values.map(toText)];
}

function rowsOf(lines: unknown[][], name: string, shape: Shape | null): Map<bigint, Row> {
  const types = (shape?.columns ?? []).map((column) => parseType(column.type));
  const rows = new Map<bigint, Row>();
  for (const [first, ...line] of lines) {
    const row = first === name ? rowOf(line as RowLine, types) : null;
    if (row) rows.set(row.rowId, row);
  }
  return rows;
}

function rowOf(line: RowLine, types: Type[]): Row | null {
  const [rowId, from, until, sortKey, checksum, ...values] = line;
  try {
    return {
      rowId: BigInt(rowId),
      visibleFrom: from === null ? null : BigInt(from),
      visibleUntil: until === null ? null : BigInt(until),
      sortKey: unhex(sortKey),
      checksum: BigInt(checksum),
      values: types.map((type, place) => fromText(values[place] ?? null, type)),
    };
  } catch {
    return null;
  }
}

// ---- what is staged

function stagedHead({ whole, shape, repair, removed, resume }: Staged): Json {
  const { resend, have } = repair;
  return {
    whole,
    shape,
    resend: resend.map(String),
    have: have?.map(String) ?? null,
    removed: [...removed].map(String),
    resume: hex(resume!),
  };
}

function stagedOf(lines: unknown[][], head: Json, shape: Shape | null): Staged {
  const own = head.shape as Shape | null;
  const have = head.have === null ? null : bigints(head.have);
  const repair: Repair = { resend: bigints(head.resend), have };
  return {
    whole: head.whole as boolean,
    shape: own,
    repair,
    rows: rowsOf(lines, "staged row", own ?? shape),
    removed: new Set(bigints(head.removed)),
    resume: unhex(head.resume as string),
  };
}

function bigints(texts: unknown): bigint[] {
  return (texts as string[]).map(BigInt);
}

// ---- the last end

function flat(end: End): Json {
  const { token, digest, now, rowCount, goodUntil, leaseUntil } = end;
  return {
    token: hex(token),
    now: toText(now),
    rowCount: String(rowCount),
    digest: hex(digest),
    goodUntil: toText(goodUntil),
    leaseUntil: toText(leaseUntil),
  };
}

function unflat(end: Json): End {
  const instant = (name: string) => (end[name] === null ? null : BigInt(end[name] as string));
  return {
    token: unhex(end.token as string),
    now: instant("now"),
    rowCount: BigInt(end.rowCount as string),
    digest: unhex(end.digest as string),
    goodUntil: instant("goodUntil"),
    leaseUntil: instant("leaseUntil"),
  };
}

// ---- bytes

function hex(content: Uint8Array): string {
  return Buffer.from(content).toString("hex");
}

function unhex(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "hex"));
}

/** Written beside it and renamed: a reader, or a crash, sees the old file or the new one. */
function replace(path: string, text: string): void {
  const beside = `${path}.${process.pid}`;
  const file = openSync(beside, "w", 0o600);
  writeFileSync(file, text);
  fsyncSync(file);
  closeSync(file);
  renameSync(beside, path);
  const folder = openSync(dirname(path), "r");
  fsyncSync(folder);
  closeSync(folder);
}
