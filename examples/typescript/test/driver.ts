/** Runs the commands that come as lines of JSON, and tells after each how it ended. */
import { createInterface } from "node:readline";
import { run } from "../src/commands.js";

for await (const line of createInterface({ input: process.stdin })) {
  const code = await run(JSON.parse(line) as string[]);
  console.log(`exit ${code}`);
}
