//! Several devices under stress: random programs, delays, failures, values that go away early, much at once. The bits
//! are those of one device, failures reach who reads and nobody else, nothing hangs, and nothing is left behind.

#[path = "../common/kernels.rs"]
mod kernels;
#[path = "../common/numbers.rs"]
#[allow(dead_code)]
mod numbers;

mod failures;
mod lifetimes;
mod load;
mod overwriting;
mod random;

use meshwork::{Device, set_cpu_devices};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs a test with so many devices: alone, for they belong to the process, and for at most a minute.
fn alone(devices: usize, test: impl FnOnce(Vec<Device>) + Send + 'static) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (end, ended) = channel::<()>();
    let running = std::thread::spawn(move || {
        let _end = end;
        set_cpu_devices(devices).expect("a number of devices");
        test(Device::cpus().expect("devices"));
    });
    let result = ended.recv_timeout(Duration::from_secs(60));
    assert!(result != Err(RecvTimeoutError::Timeout), "no end after a minute");
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// What a panic says.
fn panic_of<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).err().expect("a panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).expect("a text")
}

/// Bytes in use on each device.
fn allocated(devices: &[Device]) -> Vec<usize> {
    devices.iter().map(|device| device.memory().allocated).collect()
}
