/** How the client knows its store, and shows who calls. Files are read again for every call. */
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import type { Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

export interface Credentials {
  /** A file with a key (psk_…) or a JWT; or the token itself. */
  readonly tokenFile?: string;
  readonly token?: string;
  /** The authorities that the store's certificate may be of. With it the line is encrypted. */
  readonly ca?: string;
  /** The client's own certificate and its private key. */
  readonly cert?: string;
  readonly key?: string;
}

/** What the calls of one client show. */
export class Shown {
  private last = "";

  constructor(
    private readonly address: string,
    private readonly given: Credentials,
  ) {
    const secret = given.token !== undefined || given.tokenFile !== undefined;
    if (secret && !given.ca && !isOwnMachine(address)) {
      throw new Error(`a token must not go to ${address} unencrypted: give --tls-ca`);
    }
  }

  transport() {
    const { ca, cert, key } = this.given;
    const files = { ca: content(ca), cert: content(cert), key: content(key) };
    return createGrpcTransport({
      baseUrl: `${ca ? "https" : "http"}://${this.address}`,
      nodeOptions: ca ? files : {},
      interceptors: [this.show],
    });
  }

  /** Whether a call that was refused would show something else now. */
  renewed(): boolean {
    return this.token() !== this.last;
  }

  private readonly show: Interceptor = (next) => (request) => {
    this.last = this.token();
    if (this.last) request.header.set("authorization", `Bearer ${this.last}`);
    return next(request);
  };

  private token(): string {
    const { token = "", tokenFile } = this.given;
    return tokenFile === undefined ? token : readFileSync(tokenFile, "utf8").trim();
  }
}

function content(path: string | undefined): Buffer | undefined {
  return path === undefined ? undefined : readFileSync(path);
}

function isOwnMachine(address: string): boolean {
  const host = address.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  if (isIP(host) === 4) return host.startsWith("127.");
  return host === "localhost" || host === "::1";
}
