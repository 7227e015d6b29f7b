import http from 'k6/http';
export const options = { scenarios: { load: {"executor":"shared-iterations","iterations":20,"vus":2} }, discardResponseBodies: true };
export default function () { http.get("http://127.0.0.1:8080/missing"); }
export function handleSummary(data) { return { "/work/wt-loads/crates/lab/tests/recorded/k6/missing/k6.json": JSON.stringify(data) }; }
