/** The commands: register, publish, sync, rows, watch. */
import { existsSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Client, Refused, type Syncing, typeOf } from "./client.js";
import { Copy } from "./copy.js";
import { type Credentials } from "./credentials.js";
import { load, save, type Kept } from "./file.js";
import { UpdatePattern } from "./generated/psoup/v1/psoup_pb.js";
import { display, fromText, instantText, toText, type Value } from "./values.js";

const USAGE = `psoup-copy keeps a copy of the answer of one query in FILE, and reads it offline.

  psoup-copy register FILE SQL              register a query; FILE will hold the copy of its answer
  psoup-copy sync FILE                      bring the copy up to date
  psoup-copy rows FILE                      show the answer; needs no server
  psoup-copy watch FILE                     stay connected, and show the answer whenever it changes
  psoup-copy publish STREAM ROWS.jsonl      publish rows, one JSON object per line

register:
  --key KEY            client key: the same key and SQL give the same registration
  --lease SECONDS      how long the registration lasts without contact (the store's default: 30 days)
sync:
  --budget BYTES       about how much one call may bring; the rest stays for the next one
  --calls N            stop after N calls, complete or not
  --away SECONDS       how long the client expects to be away
rows:
  --now MICROSECONDS   the instant to show, since 1970 (default: the clock of this machine)
watch:
  --rounds N           stop after N changes
publish:
  --publisher NAME --sequence N   an identity: the same batch is stored once, however often it is sent
every command:
  --address HOST:PORT  the server (default localhost:7181, or the one FILE was registered with)
  --tenant NAME        the tenant (register and publish)
  --json               rows as JSON lists of exact texts, then one object about the copy
  --tls-ca FILE        encrypt, and trust servers with a certificate of this authority
  --tls-cert FILE --tls-key FILE  the client's own certificate and its private key
  --token-file FILE    the access key or JWT to show (default: the variable PSOUP_TOKEN)
  --help               show this text`;

const OPTIONS = {
  address: { type: "string" },
  tenant: { type: "string" },
  key: { type: "string" },
  lease: { type: "string" },
  budget: { type: "string" },
  calls: { type: "string" },
  away: { type: "string" },
  now: { type: "string" },
  rounds: { type: "string" },
  publisher: { type: "string" },
  sequence: { type: "string" },
  "tls-ca": { type: "string" },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  "token-file": { type: "string" },
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

type Options = ReturnType<typeof parse>["values"];

const DEFAULT_ADDRESS = "localhost:7181";

function parse(args: string[]) {
  return parseArgs({ args, options: OPTIONS, allowPositionals: true });
}

// ---- commands

async function register(path: string, sql: string, options: Options): Promise<void> {
  const { address = DEFAULT_ADDRESS, tenant = "", key = "" } = options;
  const lease = options.lease === undefined ? {} : { leaseSeconds: number(options.lease) };
  const client = new Client(address, tenant, credentials(options));
  const { handle, notes, pattern } = await client.register(sql, { key, ...lease });
  const copy = copyFor(path, handle);
  save(path, { registration: { address, tenant, handle, key, sql }, copy });
  console.log(`registered; rows of its answer: ${UpdatePattern[pattern]}`);
  for (const note of notes) console.log(note);
}

/** A file that has a copy of the same registration keeps it. */
function copyFor(path: string, handle: Uint8Array): Copy {
  if (!existsSync(path)) return new Copy();
  try {
    const had = load(path);
    return Buffer.compare(had.registration.handle, handle) === 0 ? had.copy : new Copy();
  } catch {
    return new Copy();
  }
}

async function sync(path: string, options: Options): Promise<void> {
  const { kept, client, keep } = opened(path, options);
  const settings: Record<string, number> = {};
  if (options.budget !== undefined) settings.budget = number(options.budget);
  if (options.calls !== undefined) settings.calls = number(options.calls);
  if (options.away !== undefined) settings.awaySeconds = number(options.away);
  const { handle } = kept.registration;
  const done = await client.sync(handle, kept.copy, keep, settings as Syncing);
  if (!done) console.log("there is more to come: sync again");
  else tell(kept.copy, options);
}

function rows(path: string, options: Options): void {
  const { copy } = load(path);
  const { resend, have } = copy.damage();
  if (resend.length || have) console.error("the copy is damaged; the next sync mends it");
  if (copy.end === null) throw new Error("there is no copy yet: sync first");
  const clock = options.now === undefined ? undefined : BigInt(options.now);
  tell(copy, options, clock);
}

async function watch(path: string, options: Options): Promise<void> {
  const { kept, client, keep } = opened(path, options);
  const rounds = options.rounds === undefined ? Infinity : number(options.rounds);
  const { handle } = kept.registration;
  await client.watch(handle, kept.copy, keep, (copy) => tell(copy, options), rounds);
}

async function publish(name: string, path: string, options: Options): Promise<void> {
  const { address = DEFAULT_ADDRESS, tenant = "", publisher = "", sequence = "0" } = options;
  const client = new Client(address, tenant, credentials(options));
  const lines = readFileSync(path, "utf8").split("\n").filter((line) => line.trim());
  const rows = lines.map((line) => JSON.parse(line) as Record<string, string | null>);
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const stream = await client.describe(name);
  const values = rows.map((row) =>
    columns.map((column): Value => {
      const value = row[column] ?? null;
      return fromText(value === null ? null : String(value), typeOf(stream, column));
    }),
  );
  const identity = { publisher, sequence: BigInt(sequence) };
  const { rowCount, duplicate } = await client.publish(stream, columns, values, identity);
  console.log(`${rowCount} rows in ${name}${duplicate ? ", taken before" : ""}`);
}

// ---- what they share

/** A token stands in no option: every user of a machine can see those of its processes. */
function credentials(options: Options): Credentials {
  const found: Record<string, string> = {};
  const given = {
    ca: options["tls-ca"],
    cert: options["tls-cert"],
    key: options["tls-key"],
    tokenFile: options["token-file"],
    token: options["token-file"] === undefined ? process.env.PSOUP_TOKEN : undefined,
  };
  for (const [name, value] of Object.entries(given)) if (value) found[name] = value;
  return found;
}

function opened(path: string, options: Options) {
  const kept: Kept = load(path);
  const { address, tenant } = kept.registration;
  const client = new Client(options.address ?? address, tenant, credentials(options));
  return { kept, client, keep: (copy: Copy) => save(path, { ...kept, copy }) };
}

function tell(copy: Copy, options: Options, clock?: bigint): void {
  const now = copy.now(clock ?? BigInt(Date.now()) * 1000n);
  const types = copy.types;
  const names = (copy.shape?.columns ?? []).map((column) => column.name);
  const shown = copy.answer(now);
  if (options.json) {
    for (const row of shown) console.log(JSON.stringify(row.values.map(toText)));
    console.log(JSON.stringify(summary(copy, now)));
    return;
  }
  console.log(names.join("\t"));
  for (const row of shown) {
    console.log(row.values.map((value, place) => display(value, types[place]!)).join("\t"));
  }
  console.log(`${shown.length} rows${now === null ? "" : ` at ${instantText(now)}`}`);
}

function summary(copy: Copy, now: bigint | null) {
  const { end, shape } = copy;
  const instants = { now, synced: end?.now, goodUntil: end?.goodUntil, leaseUntil: end?.leaseUntil };
  const texts = Object.entries(instants).map(([name, at]) => [name, at == null ? null : String(at)]);
  return { ...Object.fromEntries(texts), kept: copy.rows.size, slides: shape?.slides };
}

function number(text: string): number {
  const found = Number(text);
  if (!Number.isFinite(found) || found < 0) throw new Error(`${text} is no number of 0 or more`);
  return found;
}

/** One command; the exit code. */
export async function run(args: string[]): Promise<number> {
  try {
    const { values, positionals } = parse(args);
    const [command, first, second] = positionals;
    if (values.help) console.log(USAGE);
    else if (command === "register" && first && second) await register(first, second, values);
    else if (command === "publish" && first && second) await publish(first, second, values);
    else if (command === "sync" && first) await sync(first, values);
    else if (command === "rows" && first) rows(first, values);
    else if (command === "watch" && first) await watch(first, values);
    else throw new Error(`an unknown command, or an argument is missing\n\n${USAGE}`);
    return 0;
  } catch (error) {
    complain(error as Error);
    return 1;
  }
}

function complain(error: Error): void {
  console.error(`psoup-copy: ${error.message}`);
  if (!(error instanceof Refused)) return;
  if (!error.message.includes(error.hint)) console.error(`hint: ${error.hint}`);
  if (error.reason) console.error(`reason: ${error.reason}`);
}
