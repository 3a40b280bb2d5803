/**
 * A copy of one answer, as docs/reference/protocol.md tells it under Sync.
 *
 * `take` is given the parts of the copy's item as they come. Whatever comes after `begin` is
 * staged, and becomes the copy with `end`, all at once.
 */
import {
  DigestOf,
  type SyncBegin,
  type SyncEnd,
  SyncMode,
  type SyncPart,
  type SyncRow,
  UpdatePattern,
} from "./generated/psoup/v1/psoup_pb.js";
import { checksum, digest, type Summed } from "./checksum.js";
import { ascending, fromRuns } from "./ids.js";
import { fromWire, micros, parseType, type Type, type Value } from "./values.js";

export interface Row extends Summed {
  readonly checksum: bigint;
}

export interface Column {
  readonly name: string;
  readonly type: string;
}

/** What a whole answer says of itself and of the changes that follow it. */
export interface Shape {
  readonly columns: readonly Column[];
  readonly digestOf: DigestOf;
  readonly slides: boolean;
  readonly pattern: UpdatePattern;
}

/** What the last `end` said. Instants are microseconds since 1970, null where absent. */
export interface End {
  readonly token: Uint8Array;
  readonly now: bigint | null;
  readonly rowCount: bigint;
  readonly digest: Uint8Array;
  readonly goodUntil: bigint | null;
  readonly leaseUntil: bigint | null;
}

/** Rows of the copy to send again; or, where others are missing or too many, all that are whole. */
export interface Repair {
  readonly resend: readonly bigint[];
  readonly have: readonly bigint[] | null;
}

export interface Staged {
  readonly whole: boolean;
  readonly shape: Shape | null;
  readonly repair: Repair;
  readonly rows: Map<bigint, Row>;
  readonly removed: Set<bigint>;
  resume: Uint8Array | null;
}

/** What the copy sends with its next sync. */
export interface Wanted {
  readonly token: Uint8Array;
  readonly whole: boolean;
  readonly repair: Repair;
}

/** A row came in other than it was sent. */
export class Garbled extends Error {}

export const NO_REPAIR: Repair = { resend: [], have: null };
const NO_TOKEN = new Uint8Array();

export class Copy {
  private asked: Repair = NO_REPAIR;

  constructor(
    public shape: Shape | null = null,
    public end: End | null = null,
    public rows: Map<bigint, Row> = new Map(),
    public staged: Staged | null = null,
  ) {}

  get types(): Type[] {
    return typesOf(this.shape);
  }

  // ---- the answer

  /** NOW of the copy, given the clock: it goes on by itself only where the copy slides. */
  now(clock: bigint): bigint | null {
    const last = this.end?.now ?? null;
    return this.shape?.slides && (last === null || clock > last) ? clock : last;
  }

  /** In the order of the answer. Without a NOW only rows without an interval count. */
  answer(now: bigint | null): Row[] {
    return [...this.rows.values()].filter((row) => isVisible(row, now)).sort(inOrder);
  }

  // ---- what to ask for

  /**
   * What the next sync has to send. A transfer that was cut goes on, unless what it was begun with
   * is not what there is. With `whole` the whole answer is asked for.
   */
  want(whole: boolean): Wanted {
    const repair = whole ? NO_REPAIR : this.damage();
    const staged = this.staged;
    if (staged?.resume && (staged.whole || (!whole && isSame(repair, staged.repair)))) {
      this.asked = staged.repair;
      return { token: staged.resume, whole: false, repair: staged.repair };
    }
    this.staged = null;
    this.asked = repair;
    return { token: this.end?.token ?? NO_TOKEN, whole, repair };
  }

  /** Whether count and digest are those of the last `end`. */
  isSound(): boolean {
    if (this.end === null) return true;
    const { now, rowCount, digest: expected } = this.end;
    const rows = [...this.rows.values()].filter((row) => !isExpired(row, now));
    const byId = this.shape?.digestOf !== DigestOf.CHECKSUMS;
    const found = digest(rows.map((row) => (byId ? row.rowId : row.checksum)));
    return BigInt(rows.length) === rowCount && Buffer.compare(found, expected) === 0;
  }

  /** What has to be mended, after a look at every row. */
  damage(): Repair {
    const types = this.types;
    const rows = [...this.rows.values()];
    const whole = rows.filter((row) => row.checksum === checksum(row, types));
    if (!this.isSound()) return { resend: [], have: sortedIds(whole) };
    const kept = new Set(whole);
    return { resend: sortedIds(rows.filter((row) => !kept.has(row))), have: null };
  }

  // ---- parts

  take({ part }: SyncPart): void {
    switch (part.case) {
      case "begin":
        return this.begin(part.value);
      case "removed":
        for (const id of fromRuns(part.value.runs)) this.stage.removed.add(id);
        return;
      case "rows":
        for (const row of part.value.rows) this.add(row);
        return;
      case "resume":
        this.staged ??= this.emptyStage(null, false);
        this.staged.resume = part.value;
        return;
      case "end":
        return this.finish(part.value);
      default:
        throw new Error(`a part that was not asked for: ${part.case}`);
    }
  }

  private get stage(): Staged {
    if (this.staged === null) throw new Error("a part came before its begin");
    return this.staged;
  }

  private begin(begin: SyncBegin): void {
    if (begin.continued && this.stage) return;
    const whole = begin.mode === SyncMode.WHOLE;
    this.staged = this.emptyStage(whole ? shapeOf(begin) : null, whole);
  }

  private emptyStage(shape: Shape | null, whole: boolean): Staged {
    const empty = { rows: new Map(), removed: new Set<bigint>() };
    return { whole, shape, repair: this.asked, ...empty, resume: null };
  }

  private add(sent: SyncRow): void {
    const row = rowOf(sent);
    if (row.checksum !== checksum(row, typesOf(this.stage.shape ?? this.shape))) {
      throw new Garbled(`row ${row.rowId} has another checksum than was sent with it`);
    }
    this.stage.rows.set(row.rowId, row);
  }

  private finish(sent: SyncEnd): void {
    const { whole, shape, rows } = this.stage;
    const kept = whole ? [] : this.kept();
    this.shape = shape ?? this.shape;
    this.end = endOf(sent);
    const all = new Map([...kept, ...rows.values()].map((row) => [row.rowId, row]));
    for (const [id, row] of all) if (isExpired(row, this.end.now)) all.delete(id);
    this.rows = all;
    this.staged = null;
  }

  /** What stays of the copy: not what was removed, nor what was damaged and is sent again. */
  private kept(): Row[] {
    const { removed, repair } = this.stage;
    const have = repair.have === null ? null : new Set(repair.have);
    const dropped = new Set([...removed, ...repair.resend]);
    return [...this.rows.values()].filter(
      (row) => !dropped.has(row.rowId) && (have === null || have.has(row.rowId)),
    );
  }
}

// ---- rows

function isExpired(row: Row, now: bigint | null): boolean {
  return now !== null && row.visibleUntil !== null && row.visibleUntil <= now;
}

function isVisible(row: Row, now: bigint | null): boolean {
  if (now === null) return row.visibleFrom === null;
  return (row.visibleFrom === null || row.visibleFrom <= now) && !isExpired(row, now);
}

function inOrder(a: Row, b: Row): number {
  const since = -(2n ** 63n);
  return (
    Buffer.compare(a.sortKey, b.sortKey) ||
    ascending(a.visibleFrom ?? since, b.visibleFrom ?? since) ||
    ascending(a.rowId, b.rowId)
  );
}

function sortedIds(rows: readonly Row[]): bigint[] {
  return rows.map((row) => row.rowId).sort(ascending);
}

function isSame(a: Repair, b: Repair): boolean {
  return String(a.resend) === String(b.resend) && String(a.have) === String(b.have);
}

function typesOf(shape: Shape | null): Type[] {
  return (shape?.columns ?? []).map((column) => parseType(column.type));
}

// ---- from the wire

function rowOf(sent: SyncRow): Row {
  return {
    rowId: sent.rowId,
    visibleFrom: sent.visibleFrom ?? null,
    visibleUntil: sent.visibleUntil ?? null,
    sortKey: sent.sortKey,
    checksum: sent.checksum,
    values: sent.values.map(fromWire) as Value[],
  };
}

function shapeOf({ columns, digestOf, slides, pattern }: SyncBegin): Shape {
  return { columns: columns.map(({ name, type }) => ({ name, type })), digestOf, slides, pattern };
}

function endOf(sent: SyncEnd): End {
  return {
    token: sent.token,
    now: sent.now ? micros(sent.now) : null,
    rowCount: sent.rowCount,
    digest: sent.digest,
    goodUntil: sent.goodUntil ? micros(sent.goodUntil) : null,
    leaseUntil: sent.leaseUntil ? micros(sent.leaseUntil) : null,
  };
}
