import http from 'k6/http';
export const options = { scenarios: { load: {"duration":"1000ms","executor":"constant-arrival-rate","maxVUs":2,"preAllocatedVUs":2,"rate":50,"timeUnit":"1s"} }, discardResponseBodies: true };
export default function () { http.get("http://127.0.0.1:8080/"); }
export function handleSummary(data) { return { "/work/wt-loads/crates/lab/tests/recorded/k6/paced/k6.json": JSON.stringify(data) }; }
