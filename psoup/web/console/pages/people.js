// @ts-check
/** People: keys, grants, policies, quotas, audit, as far as the caller may see them. */

import { get } from "../api.js";
import { clock, count, empty, fill, h, panel, part, progress, shown, soft, table } from "../dom.js";

const AUDIT_ROWS = 100;

/** @param {import("../main.js").Context} context */
export async function people({ root, signal }) {
  const status = await get("/v1/status", {}, signal);
  const { owner, tenant, modes, credential, missing } = status.security || {};
  const pair = h("div", { class: "pair" }), audit = h("div");
  fill(root, h("div", { class: "title" }, h("h1", null, "People")),
    modes?.length
      ? h("p", { class: "note" }, "You are ", h("strong", null, shown(owner || "nobody")), " of the tenant ", h("strong", null, shown(tenant || "main")), credential && [", by ", shown(credential)], ".")
      : h("p", { class: "warn" }, "This store asks nobody who they are. That is right on your own machine; ", h("code", null, "psoup serve --auth keys"), " asks for access keys."),
    missing?.length > 0 && soft("Not switched on: ", shown(missing.join(", "))), pair, audit);
  /** @param {Element} place @param {string} title @param {string} path @param {(body: any) => any} draw @param {any[]} lesson */
  const section = (place, title, path, draw, lesson) => {
    const body = h("div", null, soft("…"));
    place.append(panel(title, body));
    return part(body, get(path, path.endsWith("audit") ? { page_size: AUDIT_ROWS } : {}, signal), (answer) => draw(answer) || empty(`No ${title.toLowerCase()} yet`, h("p", null, lesson)));
  };
  const code = (text) => h("code", null, text);
  await Promise.all([
    section(pair, "Keys", "/v1/keys", ({ keys }) => keys.length && table(["id", "owner", "roles", "created", "expires"], keys.map((key) => [code(shown(key.id)), shown(key.owner), shown(key.roles.join(", ")), clock(key.created?.slice(0, 16)), key.expires ? clock(key.expires.slice(0, 16)) : "never"])),
      [code("psoup key create ann --role reader"), " makes one, and shows it once."]),
    section(pair, "Grants", "/v1/grants", ({ grants }) => grants.length && table(["action", "on", "to"], grants.map((grant) => [shown(grant.action), shown(grant.object || "everything"), shown(grant.role ? `role ${grant.role}` : `owner ${grant.owner}`)])),
      [code("GRANT READ ON trades TO ROLE desk"), " lets callers with that role read a stream."]),
    section(pair, "Policies", "/v1/streams", ({ streams }) => {
      const rows = streams.flatMap((stream) => stream.policies.map((policy) => [shown(stream.name), code(shown(policy))]));
      return rows.length && table(["stream", "policy"], rows);
    }, [code("CREATE POLICY mine ON trades USING (symbol = claim('symbol'))"), " shows each caller the rows that fit the claims of its key."]),
    section(pair, "Quotas", "/v1/quotas", ({ quotas }) => quotas.length && quotaTable(quotas), [code("psoup quota set"), " bounds what a tenant or an owner may have and do."]),
    section(audit, "Audit", "/v1/audit", ({ records }) => records.length && table(["at", "who", "what", "on", "detail"], records.map((record) => [clock(record.at?.slice(0, 19)), shown(record.actor || "–"), shown(record.action), shown(record.object), code(shown(record.detail))])),
      ["Who created streams, views, keys, grants, policies and quotas is listed here, newest first."]),
  ]);
}

/** @param {any[]} quotas */
export function quotaTable(quotas) {
  const rows = quotas.flatMap((quota) => quota.limits.map((limit) => [shown(quota.owner ? `owner ${quota.owner}` : `tenant ${quota.tenant || "main"}`), shown(limit.name), count(limit.used), count(limit.limit), progress(limit.used, limit.limit, limit.name)]));
  return table(["of", "what", "used", "limit", ""], rows, { numbers: [2, 3] });
}
