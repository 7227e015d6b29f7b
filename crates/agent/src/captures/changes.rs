//! Follows changed routes and addresses of captured namespaces.

use super::Order;
use sidestep_ebpf::capture::changes::{Change, Changes};
use sidestep_error::chain;
use std::sync::mpsc::Sender;

/// Reports every change in any namespace that has a number here, until the receiver has gone.
pub fn follow(orders: &Sender<Order>) {
    let end = match Changes::listen() {
        Err(error) => {
            format!("routes and addresses of captured pods are not followed as they change: {}", chain(&error))
        }
        Ok(changes) => loop {
            let order = match changes.next() {
                Ok(Change::In(number)) => Order::Changed(number),
                Ok(Change::End(number)) => Order::Ended(number),
                Ok(Change::Lost) => Order::Lost(String::new()),
                Err(error) => {
                    break format!(
                        "routes and addresses of captured pods are not followed any more: {}",
                        chain(&error)
                    );
                }
            };
            if orders.send(order).is_err() {
                return;
            }
        },
    };
    let _ = orders.send(Order::Lost(end));
}
