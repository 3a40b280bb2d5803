#!/usr/bin/env node
/** The command line. */
import { run } from "./commands.js";

process.exitCode = await run(process.argv.slice(2));
