-- Prints wrk's own counts as one line of JSON: latencies in microseconds, exact where
-- wrk's table is rounded.
done = function(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      "\njson {\"requests\":%d,\"duration_us\":%d,\"p50\":%d,\"p90\":%d,\"p99\":%d,\"errors\":%d}\n",
      summary.requests, summary.duration,
      latency:percentile(50), latency:percentile(90), latency:percentile(99),
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
