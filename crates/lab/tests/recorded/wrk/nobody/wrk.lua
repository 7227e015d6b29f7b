
done = function(summary, latency, requests)
  local pairs_of = {}
  for i = 1, #latency do
    pairs_of[i] = string.format("[%d,%d]", latency(i))
  end
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration":%d,"bytes":%d,"socket":%d,"status":%d,"timeout":%d,"latency":[%s]}\n',
    summary.requests, summary.duration, summary.bytes, e.connect + e.read + e.write, e.status, e.timeout,
    table.concat(pairs_of, ",")))
end
