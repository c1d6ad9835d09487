//! Who tries the orders in which the threads of a model can meet.

use meshwork_comm::World;

/// Runs a model in many random orders, and in many with few preemptions. It is given the number of the order.
#[cfg(shuttle)]
pub fn explore(model: impl Fn(u64) + Send + Sync + 'static) {
    use shuttle::rand::RngCore;
    use std::sync::Arc;
    let model = Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(shuttle::rand::thread_rng().next_u64()), 3000);
    shuttle::check_pct(move || again(shuttle::rand::thread_rng().next_u64()), 3000, 3);
}

/// Runs a model in the orders that happen; fails when that takes longer than a minute, because something waits for what
/// never comes.
#[cfg(not(shuttle))]
pub fn explore(model: impl Fn(u64) + Send + Sync + 'static) {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let running = std::thread::spawn(move || {
        let _end = end;
        (0..100).for_each(model);
    });
    let timeout = Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(ended.recv_timeout(std::time::Duration::from_secs(60)) != timeout, "no end after a minute");
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A world whose ranks are delayed before and inside collectives.
pub fn world(ranks: usize, seed: u64) -> World {
    World::new(ranks).jitter(seed)
}
