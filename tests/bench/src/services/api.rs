//! What kube-proxy asks an API server for, without one: lists of Services and EndpointSlices, and watches of them, in which a
//! slice that is put comes as a change. What is measured beside it is kube-proxy, and not how long etcd takes to store objects.

use super::objects;
use super::workload::{NAMESPACE, services};
use crate::args::Args;
use crate::net;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

/// No body of a slice is longer.
const LONGEST: usize = 1 << 20;
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const SERVICES: &str = "/api/v1/services";
const NODES: &str = "/api/v1/nodes";

struct Cluster {
    services: Vec<Value>,
    node: Value,
    state: Mutex<State>,
}

struct State {
    version: u64,
    slices: Vec<Value>,
    watchers: Vec<mpsc::Sender<Value>>,
}

pub fn run(args: &Args) -> Result<(), String> {
    let (port, node): (u16, String) = (args.required("port")?, args.required("node")?);
    let all = services(super::count(args)?);
    args.finish()?;
    let slices = all.iter().map(objects::slice).collect();
    let cluster = Arc::new(Cluster {
        services: all.iter().map(objects::service).collect(),
        node: json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node", "uid": "n", "resourceVersion": "1"},
            "status": {"addresses": [{"type": "InternalIP", "address": node}]},
        }),
        state: Mutex::new(State { version: 1, slices, watchers: Vec::new() }),
    });
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
    net::say("ready")?;
    for stream in listener.incoming() {
        let (cluster, stream) = (cluster.clone(), stream.map_err(|e| format!("accept: {e}"))?);
        std::thread::spawn(move || {
            // A client that is gone is no failure of ours.
            let _ = cluster.serve(&stream);
        });
    }
    Ok(())
}

struct Request {
    method: String,
    path: String,
    query: String,
    body: Vec<u8>,
}

impl Cluster {
    /// One request after another, until the client closes or watches.
    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader)? {
            if request.query.split('&').any(|each| each == "watch=true" || each == "watch=1") {
                return self.watch(&request, stream);
            }
            let (status, body) = self.answer(&request);
            let body = body.to_string();
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + &body).as_bytes())?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> (&'static str, Value) {
        let none = || ("404 Not Found", status(404, "NotFound"));
        let state = self.state.lock().expect("no holder panics");
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", SERVICES) => ("200 OK", list("v1", "ServiceList", &self.services, state.version)),
            ("GET", SLICES) => {
                ("200 OK", list("discovery.k8s.io/v1", "EndpointSliceList", &state.slices, state.version))
            }
            ("GET", NODES) => ("200 OK", list("v1", "NodeList", std::slice::from_ref(&self.node), state.version)),
            ("GET", path) if path.strip_prefix(NODES) == Some("/node") => ("200 OK", self.node.clone()),
            ("PUT", _) => {
                drop(state);
                self.put(&request.body).map_or_else(none, |slice| ("200 OK", slice))
            }
            // Events that nobody reads.
            ("POST", _) => ("201 Created", json!({})),
            _ => none(),
        }
    }

    /// None if there is no slice of that name.
    fn put(&self, body: &[u8]) -> Option<Value> {
        let mut slice: Value = serde_json::from_slice(body).ok()?;
        let mut state = self.state.lock().expect("no holder panics");
        state.version += 1;
        slice["metadata"]["resourceVersion"] = state.version.to_string().into();
        let name = slice["metadata"]["name"].clone();
        let place = state.slices.iter_mut().find(|each| each["metadata"]["name"] == name)?;
        *place = slice.clone();
        let event = json!({"type": "MODIFIED", "object": slice});
        state.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
        Some(slice)
    }

    /// Until either end is gone. Of anything but slices nothing ever changes.
    fn watch(&self, request: &Request, mut stream: &TcpStream) -> std::io::Result<()> {
        // A list that comes as a watch: the client then asks for both, one after the other.
        if request.query.contains("sendInitialEvents=true") {
            let body = status(422, "Invalid").to_string();
            let head = format!(
                "HTTP/1.1 422 Unprocessable Entity\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            return stream.write_all((head + &body).as_bytes());
        }
        let (sender, events) = mpsc::channel();
        // Kept, so that a watch of something else waits for events that never come.
        let _idle = match request.path == SLICES {
            true => {
                self.state.lock().expect("no holder panics").watchers.push(sender);
                None
            }
            false => Some(sender),
        };
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for event in events {
            let line = format!("{event}\n");
            stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())?;
        }
        Ok(())
    }
}

fn list(version: &str, kind: &str, items: &[Value], resource_version: u64) -> Value {
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"resourceVersion": resource_version.to_string()}, "items": items,
    })
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code,
        "message": format!("{reason}: there are only Services, EndpointSlices and a node of namespace {NAMESPACE}"),
    })
}

/// None at the end of the connection.
fn read(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut length = 0;
    loop {
        let mut field = String::new();
        if reader.read_line(&mut field)? == 0 || field.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = field.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length.min(LONGEST)];
    reader.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Ok(Some(Request { method, path: path.into(), query: query.into(), body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let slices = services(3).iter().map(objects::slice).collect();
        let state = Mutex::new(State { version: 1, slices, watchers: Vec::new() });
        Cluster { services: Vec::new(), node: Value::Null, state }
    }

    #[test]
    fn a_slice_that_is_put_is_listed_and_told_to_watchers() {
        let (cluster, (sender, events)) = (cluster(), mpsc::channel());
        cluster.state.lock().unwrap().watchers.push(sender);
        let mut slice = objects::slice(&services(3)[1]);
        slice["endpoints"] = json!([]);
        assert!(cluster.put(slice.to_string().as_bytes()).is_some());
        let event = events.try_recv().expect("an event");
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["resourceVersion"]),
            (&json!("MODIFIED"), &json!("2"))
        );
        let request = Request { method: "GET".into(), path: SLICES.into(), query: String::new(), body: Vec::new() };
        let (_, listed) = cluster.answer(&request);
        assert_eq!(listed["items"][1]["endpoints"], json!([]));
        assert_eq!(listed["metadata"]["resourceVersion"], "2");
    }

    #[test]
    fn what_is_not_there_cannot_be_put() {
        assert!(cluster().put(br#"{"metadata": {"name": "other"}}"#).is_none());
        assert!(cluster().put(b"no JSON").is_none());
    }
}
