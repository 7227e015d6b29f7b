//! HTTP: curl, and nginx on both sides of a Service.

use super::dns;
use crate::node::Node;
use crate::scratch::Scratch;
use crate::sockets::{at, until};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::program::{Running, command};
use sidestep_testkit::{Namespace, Pod};
use std::net::TcpStream;

const VIP: &str = "10.96.0.80";
const VIP6: &str = "fd00:96::80";

/// nginx with these lines in its `http` block, listening at port 8080. It has a single process, so that no worker outlives it.
struct Nginx {
    _running: Running,
    _scratch: Scratch,
}

fn nginx(namespace: &Namespace, http: &str) -> Nginx {
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    let configuration = format!(
        "daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {directory}/a; proxy_temp_path {directory}/b;\n\
         fastcgi_temp_path {directory}/c; uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;\n{http}\n}}\n"
    );
    let file = scratch.file("nginx.conf", &configuration);
    let mut running = namespace.start(command("nginx").args(["-p", &directory, "-c", file.to_str().unwrap()]));
    until("nginx listens", || {
        assert_eq!(running.ended(), None, "nginx has ended");
        namespace.run(|| TcpStream::connect(at("::1", 8080)).is_ok())
    });
    Nginx { _running: running, _scratch: scratch }
}

/// A server that tells each client which address it has reached.
fn web_server(pod: &Pod) -> Nginx {
    nginx(&pod.namespace, "server { listen [::]:8080 ipv6only=off; return 200 \"$server_addr\\n\"; }")
}

fn curl(client: &Pod, url: &str) -> Vec<String> {
    let written = "%{http_code} %{remote_ip} %{remote_port}";
    let said = client.namespace.finish(command("curl").args(["-sS", "--max-time", "30", "-g", "-w", written, url]));
    said.split_whitespace().map(String::from).collect()
}

#[test]
fn curl_names_the_service_as_its_peer() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = web_server(&server);
    node.service("four", Tcp, VIP, 80, [(server.v4, 8080)]);
    node.service("six", Tcp, VIP6, 80, [(server.v6, 8080)]);
    let v4 = format!("::ffff:{}", server.v4);
    assert_eq!(curl(&client, &format!("http://{VIP}/")), [v4.as_str(), "200", VIP, "80"]);
    assert_eq!(curl(&client, &format!("http://[{VIP6}]/")), [&server.v6.to_string(), "200", VIP6, "80"]);
}

/// A proxy that resolves names by a Service and connects to the results, which are Services again.
#[test]
fn nginx_resolves_by_a_service_and_proxies_to_one() {
    let mut node = Node::new();
    let (proxy, server, name_server) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _dns = dns::server(&name_server, 5353, &[("web.test", VIP), ("web6.test", VIP6)]);
    let _server = web_server(&server);
    node.service("four", Tcp, VIP, 80, [(server.v4, 8080)]);
    node.service("six", Tcp, VIP6, 80, [(server.v6, 8080)]);
    node.service("dns", Udp, "10.96.0.53", 53, [(name_server.v4, 5353)]);
    let _proxy = nginx(
        &proxy.namespace,
        "resolver 10.96.0.53 valid=1s; resolver_timeout 30s;\n\
         server { listen [::]:8080 ipv6only=off; add_header X-Upstream $upstream_addr;\n\
         location / { set $host_name $arg_host; proxy_pass http://$host_name:80/; } }",
    );
    let v4 = format!("::ffff:{}", server.v4);
    for (host, reached, vip) in
        [("web.test", v4, VIP.to_string()), ("web6.test", server.v6.to_string(), format!("[{VIP6}]"))]
    {
        let url = format!("http://127.0.0.1:8080/?host={host}");
        let said = proxy.namespace.finish(command("curl").args(["-sS", "-i", "--max-time", "30", &url]));
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with(&format!("{reached}\n")), "{said}");
        assert!(said.contains(&format!("X-Upstream: {vip}:80\r\n")), "{said}");
    }
    assert_eq!((node.counters("four").picks, node.counters("six").picks), (1, 1));
}
