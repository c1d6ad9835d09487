//! Values and devices that go away while there is work for them.

use crate::kernels::{boom, late, with_action};
use crate::{allocated, alone, panic_of};
use meshwork::tensor::{arange, ones, randn, zeros};
use meshwork::{DType, Device, Tensor, set_cpu_devices, synchronize, with_default_device};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn what_is_dropped_is_not_computed_or_let_go() {
    alone(3, |devices| {
        let before = allocated(&devices);
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 0..30 {
            let x = ones(&[64, 64], DType::F32);
            let counted = |x: &Tensor| {
                let ran = ran.clone();
                with_action(x, move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
            };
            // Never handed over; handed over and dropped while it waits; dropped before its copy.
            drop(counted(&x.to(&devices[1])).to(&devices[2]));
            let waits = counted(&late(&x.to(&devices[1]), round % 2)).to(&devices[2]) * 2.0;
            waits.eval();
            drop(waits);
            let copied = counted(&x.to(&devices[2]));
            let copy = copied.to(&devices[0]);
            drop(copied);
            copy.eval();
            drop(copy);
        }
        synchronize();
        assert_eq!(allocated(&devices), before);
        assert_eq!(ran.load(Ordering::Relaxed), 60);
    });
}

#[test]
fn nothing_goes_to_other_devices_and_back() {
    alone(3, |devices| {
        let empty = zeros(&[0, 5], DType::F32).to(&devices[1]).variable();
        let wide = (empty.to(&devices[2]).exp() * 2.0).matmul(&ones(&[5, 3], DType::F32).to(&devices[2]));
        assert_eq!(wide.shape(), [0, 3]);
        let sum = wide.to(&devices[0]).sum(..);
        let gradient = meshwork::grad(&sum, &[&empty]).remove(0);
        assert_eq!(sum.item(), 0.0);
        assert_eq!(gradient.shape(), [0, 5]);
        assert_eq!(gradient.to_bytes(), [0u8; 0]);
        assert_eq!(wide.to_bytes(), [0u8; 0]);
        assert_eq!(gradient.device(), devices[1]);
        let none = ones(&[3, 0], DType::F32).to(&devices[1]);
        assert_eq!(none.sum(1).to(&devices[2]).to_vec::<f32>(), [0.0; 3]);
    });
}

#[test]
fn devices_go_away_while_there_is_work() {
    alone(3, |devices| {
        let x = randn(&[20, 20]);
        let expected = (&x * 2.0).to_bytes();
        let slow = (late(&x.to(&devices[1]), 30) * 2.0).to(&devices[2]);
        slow.eval();
        // Recorded and not handed over yet; the new devices are made behind it.
        let recorded = late(&x.to(&devices[2]), 10) * 2.0;
        let failed = boom(&x.to(&devices[1]));
        set_cpu_devices(2).expect("two devices");
        assert_eq!(slow.to_bytes(), expected);
        assert_eq!(recorded.to_bytes(), expected);
        assert!(panic_of(|| failed.to_bytes()).contains("boom"));
        for text in [
            panic_of(|| &slow + 1.0),
            panic_of(|| slow.to(&Device::cpu(0).expect("a device"))),
            panic_of(|| x.matmul(&x)),
            panic_of(|| x.device()),
            panic_of(|| ones(&[2], DType::F32).to(&devices[1])),
            panic_of(|| with_default_device(&devices[1], || zeros(&[2], DType::F32))),
        ] {
            assert!(text.contains("has gone away"), "{text}");
        }
        // None of this is in the way of others.
        let y = ones(&[3], DType::F32).to(&Device::cpu(1).expect("a device"));
        assert_eq!((y + 1.0).to_vec::<f32>(), [2.0; 3]);
        assert_eq!(x.to_bytes().len(), 1600);
    });
}

/// The threads of this process whose names begin so.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the process's threads");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok().filter(|name| name.starts_with("meshwork-"))
    };
    tasks.filter_map(name).count()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> usize {
    0
}

#[test]
fn threads_end_with_their_devices() {
    alone(1, |devices| {
        drop(devices);
        let mut kept = Vec::new();
        for count in [1, 5, 2, 8, 3] {
            set_cpu_devices(count).expect("devices");
            let devices = Device::cpus().expect("devices");
            let mut x = arange(100, DType::F32).to(&devices[0]);
            for device in &devices {
                device.set_num_threads(2).expect("two threads");
                x = x.to(device) + 1.0;
            }
            x.eval();
            kept.push((count, x));
        }
        for (count, x) in kept {
            assert_eq!(x.to_f64(), (0..100).map(|i| (i + count) as f64).collect::<Vec<f64>>());
        }
        set_cpu_devices(1).expect("one device");
        // The last ends on its own time.
        let start = Instant::now();
        while threads() > 0 && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(threads(), 0);
    });
}
