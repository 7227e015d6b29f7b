//! Follows changed routes and addresses of captured namespaces.

use super::{Blind, Order};
use sidestep_ebpf::capture::changes::{Change, Changes};
use std::io;
use std::sync::mpsc::Sender;

/// Reports every change in any namespace that has a number here, until the receiver has gone.
pub fn follow(orders: &Sender<Order>) {
    if let Err(error) = forward(orders) {
        // Without a receiver nobody needs to know.
        let _ = orders.send(Order::Blinded(Blind::new(error)));
    }
}

/// Ok: the receiver has gone.
fn forward(orders: &Sender<Order>) -> io::Result<()> {
    let changes = Changes::listen()?;
    loop {
        let order = match changes.next()? {
            Change::In(number) => Order::Changed(number),
            Change::End(number) => Order::Ended(number),
            Change::Lost => Order::Lost,
        };
        if orders.send(order).is_err() {
            return Ok(());
        }
    }
}
