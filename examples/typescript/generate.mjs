// Makes src/generated/ from the project's proto files.
//
// protoc is the one named by PROTOC, one on the path, or that of Python's grpcio-tools.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const proto = join(here, "..", "..", "proto");
const target = join(here, "src", "generated");
const pythons = [join(here, "..", "..", ".venv", "bin", "python"), "python3"];

const compilers = [
  ...(process.env.PROTOC ? [process.env.PROTOC.split(" ")] : []),
  ["protoc"],
  ...pythons.map((python) => [python, "-m", "grpc_tools.protoc"]),
];

function works([command, ...options]) {
  return spawnSync(command, [...options, "--version"]).status === 0;
}

const compiler = compilers.find(works);
if (compiler === undefined) {
  console.error("no protoc found: pip install grpcio-tools, or set PROTOC");
  process.exit(1);
}

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
const [command, ...options] = compiler;
const plugin = join(here, "node_modules", ".bin", "protoc-gen-es");
const files = readdirSync(proto, { recursive: true }).filter((name) => name.endsWith(".proto"));
const run = spawnSync(
  command,
  [
    ...options,
    `-I${proto}`,
    `--plugin=protoc-gen-es=${plugin}`,
    `--es_out=${target}`,
    "--es_opt=target=ts,import_extension=js",
    ...files,
  ],
  { stdio: "inherit" },
);
process.exit(run.status ?? 1);
