// @ts-check
/** People: keys, grants, policies, quotas, audit, as far as the caller may see them. */

import { get, isAbort } from "../api.js";
import { clock, count, empty, failure, fill, h, panel, progress, shown, table } from "../dom.js";

const AUDIT_ROWS = 100;

/** @param {import("../main.js").Context} context */
export async function people({ root, signal }) {
  const status = await get("/v1/status", {}, signal);
  const { owner, tenant, modes, credential, missing } = status.security || {};
  fill(root, h("div", { class: "title" }, h("h1", null, "People")),
    modes?.length
      ? h("p", { class: "note" }, "You are ", h("strong", null, shown(owner || "nobody")), " of the tenant ", h("strong", null, shown(tenant || "main")), credential && [", by ", shown(credential)], ".")
      : h("p", { class: "warn" }, "This store asks nobody who they are. That is right on your own machine; psoup serve --auth keys asks for access keys."),
    missing?.length > 0 && h("p", { class: "muted" }, "Not switched on: ", shown(missing.join(", "))));
  await Promise.all([
    section(root, "Keys", "/v1/keys", {}, (body) => body.keys.length && table(["id", "owner", "roles", "created", "expires"], body.keys.map((/** @type {any} */ key) => [h("code", null, shown(key.id)), shown(key.owner), shown(key.roles.join(", ")), clock(key.created?.slice(0, 16)), key.expires ? clock(key.expires.slice(0, 16)) : "never"])), "No keys", "psoup key create makes one; it is shown once.", signal),
    section(root, "Grants", "/v1/grants", {}, (body) => body.grants.length && table(["action", "on", "to"], body.grants.map((/** @type {any} */ grant) => [shown(grant.action), shown(grant.object), shown(grant.role ? `role ${grant.role}` : `owner ${grant.owner}`)])), "No grants", "GRANT READ ON trades TO ROLE desk lets callers with that role read a stream.", signal),
    section(root, "Policies", "/v1/streams", {}, (body) => {
      const rows = body.streams.flatMap((/** @type {any} */ stream) => stream.policies.map((/** @type {string} */ policy) => [shown(stream.name), h("code", null, shown(policy))]));
      return rows.length && table(["stream", "policy"], rows);
    }, "No policies", "A row policy says which rows of a stream a caller may see: psoup policy --help.", signal),
    section(root, "Quotas", "/v1/quotas", {}, (body) => body.quotas.length && quotaTable(body.quotas), "No quotas", "psoup quota set bounds what a tenant or an owner may have and do.", signal),
    section(root, "Audit", "/v1/audit", { page_size: AUDIT_ROWS }, (body) => body.records.length && table(["at", "who", "what", "on", "detail"], body.records.map((/** @type {any} */ record) => [clock(record.at?.slice(0, 19)), shown(record.actor || "–"), shown(record.action), shown(record.object), h("code", null, shown(record.detail))])), "Nothing yet", "Streams, views, grants, keys, policies and quotas are recorded here, newest first.", signal),
  ]);
}

/**
 * Add a panel at once, and fill it when its list is there.
 * @param {HTMLElement} root @param {string} title @param {string} path @param {Record<string, any>} query
 * @param {(body: any) => Node | 0} draw @param {string} without @param {string} lesson @param {AbortSignal} signal
 */
async function section(root, title, path, query, draw, without, lesson, signal) {
  const body = h("div", null, h("p", { class: "muted" }, "…"));
  root.append(panel(title, body));
  try {
    fill(body, draw(await get(path, query, signal)) || empty(without, h("p", null, lesson)));
  } catch (/** @type {any} */ error) {
    if (isAbort(error) || !error.status) throw error;
    const denied = error.status === 403 || error.status === 404 || error.status === 501;
    fill(body, denied ? empty("Not for you to see", h("p", null, shown(error.message)), h("p", null, shown(error.hint || "Those who administer the tenant can."))) : failure(error));
  }
}

/** @param {any[]} quotas */
export function quotaTable(quotas) {
  const rows = quotas.flatMap((quota) => quota.limits.map((/** @type {any} */ limit) => [shown(quota.owner ? `owner ${quota.owner}` : `tenant ${quota.tenant || "main"}`), shown(limit.name), count(limit.used), count(limit.limit), progress(limit.used, limit.limit, limit.name)]));
  return table(["of", "what", "used", "limit", ""], rows, { numbers: [2, 3] });
}
