//! Many connections at once.

use super::stream::{Random, exchange};
use super::world::{End, PORT, World, at_port, listen};

/// Random sizes in both directions, which are shut down independently. Each thread makes one connection after the other.
#[test]
fn sixty_four_at_once_lose_nothing() {
    let world = World::new();
    let connections = 64 * 3;
    let node = &world.testbed.node;
    std::thread::scope(|scope| {
        for thread in 0..64u64 {
            scope.spawn(move || {
                node.enter();
                let at = at_port(PORT + thread as u16);
                let listener = listen(at);
                for round in 0..3 {
                    let (client, server) = (End::connect(at).unwrap(), End::accept(&listener));
                    let mut random = Random::new(thread * 100 + round);
                    let lengths = [random.size(400_000), random.size(400_000)];
                    let most = random.size(100_000);
                    exchange(&client, &server, lengths, most, thread * 100 + round);
                }
            });
        }
    });
    let status = world.status();
    assert_eq!(status.reason("spliced"), connections, "{:?}", status.reasons);
    assert!(status.redirected.bytes > 0);
    assert_eq!((status.connections, status.reason("missed")), (0, 0));
}
