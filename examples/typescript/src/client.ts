/** Calls of the wire that a client with a copy makes, sent again where that is right. */
import { create, type DescMessage, type MessageInitShape, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, type Client as Stub } from "@connectrpc/connect";
import { type Credentials, Shown } from "./credentials.js";
import { Copy, Garbled, type Wanted } from "./copy.js";
import { crc32 } from "./checksum.js";
import {
  ErrorDetailSchema,
  IdsSchema,
  Psoup,
  PublishRequestSchema,
  type PublishResponse,
  RegisterRequestSchema,
  type RegisterResponse,
  type Stream,
  type SyncItem,
  SyncItemSchema,
  type SyncPart,
  type SyncRefused,
} from "./generated/psoup/v1/psoup_pb.js";
import { toRuns } from "./ids.js";
import { parseType, toWire, type Value } from "./values.js";

export interface Registering {
  /** The client's own name: the same key gives the same handle. */
  readonly key?: string;
  readonly leaseSeconds?: number;
}

export interface Publishing {
  readonly publisher?: string;
  readonly sequence?: bigint;
}

export interface Syncing {
  /** Bytes of one call, about; 0 for as many as there are. */
  readonly budget?: number;
  /** So many calls at most; what is left is for the next time. */
  readonly calls?: number;
  readonly awaySeconds?: number;
}

/** Called whenever the copy or what is staged is worth keeping. */
export type Save = (copy: Copy) => void;

/** What the server said, for people and for programs. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly code: Code,
    readonly reason: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/** A connection that breaks in the middle of a stream is told as canceled. */
const MAY_PASS = new Set([Code.Unavailable, Code.Aborted, Code.Canceled]);
const MOST_FAILURES = 6;
const LONGEST_PAUSE = 5_000;
const SILENCE = 90_000;
/** A message without Arrow has 1 MiB at most; the rest of a request is small. */
const MOST_ITEM_BYTES = 1_000_000;

export class Client {
  private readonly stub: Stub<typeof Psoup>;
  private readonly shown: Shown;

  constructor(
    address: string,
    private readonly tenant = "",
    credentials: Credentials = {},
  ) {
    this.shown = new Shown(address, credentials);
    this.stub = createClient(Psoup, this.shown.transport());
  }

  /** Again while that may help; with a token that was renewed it may, too. */
  private again<T>(call: (progress: () => void) => Promise<T>, most = MOST_FAILURES): Promise<T> {
    return again(call, most, () => this.shown.renewed());
  }

  async register(sql: string, options: Registering = {}): Promise<RegisterResponse> {
    const { key = "", leaseSeconds } = options;
    const lease = leaseSeconds === undefined ? {} : { lease: durationFromMs(leaseSeconds * 1000) };
    const request = summed(RegisterRequestSchema, { tenant: this.tenant, clientKey: key, sql, ...lease });
    const call = () => this.stub.register(request, SUMMED);
    return key ? this.again(call) : understood(call());
  }

  async describe(stream: string): Promise<Stream> {
    return this.again(() => this.stub.describeStream({ tenant: this.tenant, name: stream }));
  }

  /** One batch; sent again only where a publisher's sequence makes that safe. */
  async publish(
    stream: Stream,
    columns: string[],
    rows: readonly Value[][],
    { publisher = "", sequence = 0n }: Publishing = {},
  ): Promise<PublishResponse> {
    const types = columns.map((name) => typeOf(stream, name));
    const values = rows.map((row) => ({
      values: types.map((type, place) => toWire(row[place] ?? null, type)),
    }));
    const batch = { case: "rows" as const, value: { columns, rows: values } };
    const content = { tenant: this.tenant, stream: stream.name, publisher, sequence, batch };
    const request = summed(PublishRequestSchema, content);
    const call = () => this.stub.publish(request, SUMMED);
    return publisher ? this.again(call) : understood(call());
  }

  /**
   * Brings the copy up to date and mends it where it is damaged. False where the calls were used
   * up before. A transfer that an earlier sync began is of an earlier position, so that another
   * one follows it.
   */
  async sync(handle: Uint8Array, copy: Copy, save: Save, options: Syncing = {}): Promise<boolean> {
    const calls = { left: options.calls ?? Infinity };
    if (copy.staged?.resume && !(await this.transfer(handle, copy, save, false, options, calls))) {
      return false;
    }
    for (const whole of [false, false, true]) {
      if (!(await this.transfer(handle, copy, save, whole, options, calls))) return false;
      if (copy.isSound()) return true;
    }
    throw new Error("count or digest of the copy is wrong, also of a whole answer");
  }

  /** Calls until the item has its end. */
  private async transfer(
    handle: Uint8Array,
    copy: Copy,
    save: Save,
    whole: boolean,
    options: Syncing,
    calls: { left: number },
  ): Promise<boolean> {
    const before = copy.end;
    let anew = whole;
    while (copy.end === before) {
      if (calls.left-- <= 0) return false;
      await this.again(async (progress) => {
        const item = itemOf(handle, copy, anew);
        for await (const part of patient((signal) => this.parts(item, options, signal))) {
          take(copy, part, save);
          anew &&= copy.staged?.resume == null;
          progress();
        }
      });
    }
    return true;
  }

  private parts(item: SyncItem, options: Syncing, signal: AbortSignal): AsyncIterable<SyncPart> {
    const { budget = 0, awaySeconds } = options;
    const away = awaySeconds === undefined ? {} : { away: durationFromMs(awaySeconds * 1000) };
    const request = { tenant: this.tenant, items: [item], byteBudget: BigInt(budget), ...away };
    return this.stub.sync(request, { signal });
  }

  /**
   * Keeps the copy up to date while the client stays, and tells of every round; the first is a
   * sync. Ends after so many rounds.
   */
  async watch(
    handle: Uint8Array,
    copy: Copy,
    save: Save,
    told: (copy: Copy) => void,
    rounds = Infinity,
  ): Promise<void> {
    for (let round = 0; round < rounds; round++) {
      if (round === 0 || !copy.isSound()) await this.sync(handle, copy, save);
      else await this.changed(handle, copy, save);
      told(copy);
    }
  }

  /** A long poll, for as long as it takes: returns when there was something new. */
  private async changed(handle: Uint8Array, copy: Copy, save: Save): Promise<void> {
    const before = copy.end;
    while (copy.end === before) {
      await this.again(async (progress) => {
        const sync = { tenant: this.tenant, items: [itemOf(handle, copy, false)] };
        const parts = patient((signal) => this.stub.watch({ sync, rounds: 1 }, { signal }));
        for await (const part of parts) {
          if (part.part.case !== "beat") take(copy, part, save);
          progress();
        }
      }, Infinity);
    }
  }
}

/** Tells the server that every message of a call has a checksum. */
const SUMMED = { headers: { "psoup-checksum": "crc32" } };

/** A request with the checksum of its bytes, which comes last on the wire. */
function summed<T extends DescMessage>(schema: T, content: MessageInitShape<T>): MessageShape<T> {
  const message = create(schema, content) as MessageShape<T> & { checksum?: number };
  message.checksum = crc32(toBinary(schema, message));
  return message;
}

/** What to ask for. A server takes so many bytes: if the ids of a repair take more, all is asked for. */
function itemOf(handle: Uint8Array, copy: Copy, whole: boolean): SyncItem {
  const item = wantedItem(handle, copy.want(whole));
  const fits = toBinary(SyncItemSchema, item).length <= MOST_ITEM_BYTES;
  return fits ? item : wantedItem(handle, copy.want(true));
}

function wantedItem(handle: Uint8Array, { token, whole, repair }: Wanted): SyncItem {
  const item = create(SyncItemSchema, { handle, token, whole });
  if (repair.resend.length) item.resend = create(IdsSchema, { runs: toRuns(repair.resend) });
  if (repair.have) item.have = create(IdsSchema, { runs: toRuns(repair.have) });
  return item;
}

function take(copy: Copy, { part, ...rest }: SyncPart, save: Save): void {
  if (part.case === "refused") throw refusal(part.value);
  copy.take({ part, ...rest });
  if (part.case === "resume" || part.case === "end") save(copy);
}

/** What a row may have beside the stream's columns: what it does, and which row it may replace. */
const BATCH_TYPES = new Map([["_op", "TEXT"], ["_expected", "BIGINT"]]);

/** The type of a column that a batch may have. */
export function typeOf(stream: Stream, name: string) {
  const found = stream.columns.find((column) => column.name === name);
  const type = found?.type ?? BATCH_TYPES.get(name);
  if (!type) throw new Error(`there is no column ${name} in ${stream.name}`);
  return parseType(type);
}

// ---- failures

/** Again after a pause, while it fails for reasons that pass. Progress makes failures forgotten. */
async function again<T>(
  call: (progress: () => void) => Promise<T>,
  most: number,
  renewed: () => boolean,
): Promise<T> {
  let failures = 0;
  for (;;) {
    try {
      return await understood(call(() => (failures = 0)));
    } catch (error) {
      if (++failures >= most || !(mayPass(error) || (isUnknown(error) && renewed()))) throw error;
      await pause(failures);
    }
  }
}

function mayPass(error: unknown): boolean {
  return error instanceof Garbled || (error instanceof Refused && MAY_PASS.has(error.code));
}

/** The store does not take what was shown: nothing, or a token that has ended. */
function isUnknown(error: unknown): boolean {
  return error instanceof Refused && error.code === Code.Unauthenticated;
}

/** Longer with every failure, and never the same for two clients. */
function pause(failures: number): Promise<void> {
  const most = Math.min(LONGEST_PAUSE, 100 * 2 ** failures);
  return new Promise((wake) => setTimeout(wake, most * (0.5 + Math.random() / 2)));
}

/** Gives up when nothing came for long: the other side may be gone without a word. */
async function* patient(
  open: (signal: AbortSignal) => AsyncIterable<SyncPart>,
): AsyncIterable<SyncPart> {
  const abort = new AbortController();
  const give = () => abort.abort(new ConnectError("no answer for long", Code.Unavailable));
  let timer = setTimeout(give, SILENCE);
  try {
    for await (const part of open(abort.signal)) {
      clearTimeout(timer);
      timer = setTimeout(give, SILENCE);
      yield part;
    }
  } finally {
    clearTimeout(timer);
  }
}

async function understood<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw error instanceof ConnectError ? failure(error) : error;
  }
}

function failure(error: ConnectError): Refused {
  const [detail] = error.findDetails(ErrorDetailSchema);
  return new Refused(error.rawMessage, error.code, detail?.reason ?? "", detail?.hint ?? "");
}

function refusal({ code, message, detail }: SyncRefused): Refused {
  return new Refused(message, code as Code, detail?.reason ?? "", detail?.hint ?? "");
}
