/** Values of the language's seven types, as the copy holds them. */
import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { type Value as WireValue, ValueSchema } from "./generated/psoup/v1/psoup_pb.js";

/** BIGINT and TIMESTAMP (microseconds since 1970) are bigint; DECIMAL and DATE are text. */
export type Value = boolean | bigint | number | string | null;

export type Kind = "BOOLEAN" | "BIGINT" | "DOUBLE" | "DECIMAL" | "TEXT" | "TIMESTAMP" | "DATE";

export interface Type {
  readonly kind: Kind;
  /** Digits after the point, of a DECIMAL. */
  readonly scale: number;
}

const TYPE = /^(BOOLEAN|BIGINT|DOUBLE|TEXT|TIMESTAMP|DATE|DECIMAL\(\d+, ?(\d+)\))$/;
const INTEGER = /^-?\d+$/;
const DECIMAL = /^-?\d+(\.\d+)?$/;
const DATE = /^\d{4}-\d\d-\d\d$/;

/** Of the text a column comes with, such as "DECIMAL(10,2)". */
export function parseType(text: string): Type {
  const found = TYPE.exec(text);
  if (found === null) throw new Error(`a type this client does not know: ${text}`);
  return { kind: text.split("(")[0] as Kind, scale: Number(found[2] ?? 0) };
}

export function micros(instant: Timestamp): bigint {
  return instant.seconds * 1_000_000n + BigInt(Math.trunc(instant.nanos / 1000));
}

export function fromWire(value: WireValue): Value {
  const { kind } = value;
  if (kind.case === undefined) return null;
  return kind.case === "timestamp" ? micros(kind.value) : kind.value;
}

export function toWire(value: Value, type: Type): WireValue {
  return create(ValueSchema, { kind: wireKind(value, type) });
}

function wireKind(value: Value, type: Type): WireValue["kind"] {
  if (value === null) return { case: undefined };
  switch (type.kind) {
    case "BOOLEAN":
      return { case: "boolean", value: value as boolean };
    case "BIGINT":
      return { case: "bigint", value: value as bigint };
    case "DOUBLE":
      return { case: "double", value: value as number };
    case "DECIMAL":
      return { case: "decimal", value: value as string };
    case "TEXT":
      return { case: "text", value: value as string };
    case "DATE":
      return { case: "date", value: value as string };
    case "TIMESTAMP":
      return { case: "timestamp", value: timestamp(value as bigint) };
  }
}

function timestamp(instant: bigint): Timestamp {
  const part = BigInt.asIntN(64, ((instant % 1_000_000n) + 1_000_000n) % 1_000_000n);
  return {
    $typeName: "google.protobuf.Timestamp",
    seconds: (instant - part) / 1_000_000n,
    nanos: Number(part) * 1000,
  };
}

/** Text from which `fromText` makes exactly the same value. */
export function toText(value: Value): string | null {
  if (value === null) return null;
  return Object.is(value, -0) ? "-0" : String(value);
}

/** Throws for text that is none of the type. */
export function fromText(text: string | null, type: Type): Value {
  if (text === null) return null;
  switch (type.kind) {
    case "BOOLEAN":
      return text === "true";
    case "DOUBLE":
      return Number(text);
    case "BIGINT":
    case "TIMESTAMP":
      return BigInt(checked(text, INTEGER));
    case "DECIMAL":
      return checked(text, DECIMAL);
    case "DATE":
      return checked(text, DATE);
    case "TEXT":
      return text;
  }
}

function checked(text: string, form: RegExp): string {
  if (!form.test(text)) throw new Error(`${text} is no value`);
  return text;
}

/** For people: as `toText`, and instants as in ISO 8601. */
export function display(value: Value, type: Type): string {
  if (value !== null && type.kind === "TIMESTAMP") return instantText(value as bigint);
  return toText(value) ?? "NULL";
}

export function instantText(instant: bigint): string {
  const { seconds, nanos } = timestamp(instant);
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  return `${whole}.${String(nanos / 1000).padStart(6, "0")}Z`;
}
