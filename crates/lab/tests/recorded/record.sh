#!/bin/sh
# Records the tools' outputs anew, in a network namespace of its own (needs root, and `tools/install-deps lab lab-k6`):
#   crates/lab/tests/recorded/record.sh
set -eu
cd "$(dirname "$0")/../../../.."
if [ "${1:-}" != inside ]; then
    cargo test -p sidestep-lab --test loads --no-run
    exec unshare --net --mount-proc --pid --fork "$0" inside
fi
# With the namespace's first process, all others end.
ip link set lo up
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/nginx.conf" <<END
daemon off; pid $folder/pid; error_log $folder/log; events { }
http {
    access_log off; keepalive_requests 1000000; client_body_temp_path $folder/body; client_max_body_size 1m;
    proxy_temp_path $folder/proxy; fastcgi_temp_path $folder/fastcgi; uwsgi_temp_path $folder/uwsgi; scgi_temp_path $folder/scgi;
    server {
        listen 127.0.0.1:8080; listen 127.0.0.1:8081 http2;
        location / { return 200 "hello, world\n"; }
        location /missing { return 404 "none\n"; }
    }
}
END
nginx -c "$folder/nginx.conf" -p "$folder" 2>/dev/null &
redis-server --port 6390 --bind 127.0.0.1 --save '' >/dev/null &
iperf3 -s -p 5300 >/dev/null &
sockperf server --tcp -i 127.0.0.1 -p 11111 >/dev/null &
sleep 1
cargo test -p sidestep-lab --test loads -- --ignored --nocapture record

# What the tests read, without what the tools were given, and of k6's many metrics the one that is read.
cd crates/lab/tests/recorded
rm -f */*/body */*/wrk.lua */*/k6.js
sed -i -n '1p;/^http_req_duration,/p' k6/*/k6.csv
