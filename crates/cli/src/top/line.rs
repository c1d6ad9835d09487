//! A picture as one line of text.

use super::draw::SILENT;
use super::picture::Picture;
use super::words::{bytes, loss, of, percent, rate, thousands};

/// Most cores whose load is listed one by one.
const FEW_CORES: usize = 8;

/// `step 1,125/4,500  epoch 3/100  loss 0.2500  …`
pub fn line(picture: &Picture) -> String {
    let status = &picture.status;
    let mut parts = vec![
        format!("step {}", of(status.step, status.steps)),
        format!("epoch {}", of(status.epoch, status.epochs)),
        format!("loss {}", loss(status.loss, status.step)),
    ];
    parts.extend(status.steps_per_second.map(|speed| format!("{} steps/s", rate(speed))));
    parts.extend(status.samples_per_second.map(|speed| format!("{} samples/s", thousands(speed))));
    parts.extend(cores(&picture.cores));
    for (device, busy) in status.devices.iter().zip(&picture.busy) {
        for (queue, busy) in device.queues.iter().zip(busy) {
            let running = queue.running.as_ref().map(|running| format!(", {running}")).unwrap_or_default();
            parts.push(format!("{} busy {}, {} waiting{running}", queue.name, percent(*busy), queue.depth));
        }
        let memory = device.memory;
        parts.push(format!("memory {}, {} planned", bytes(memory.used), bytes(memory.planned)));
    }
    if picture.silence >= SILENT {
        parts.push(format!("no news for {}", super::words::time(picture.silence)));
    }
    parts.join("  ")
}

fn cores(loads: &[f64]) -> Option<String> {
    match loads.len() {
        0 => None,
        n if n <= FEW_CORES => {
            let each: Vec<String> = loads.iter().map(|load| format!("{:.0}", 100.0 * load)).collect();
            Some(format!("cores {} %", each.join(" ")))
        }
        n => Some(format!("{n} cores {}", percent(loads.iter().sum::<f64>() / n as f64))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::{device, status};
    use super::*;
    use meshwork::monitor::Status;
    use std::time::{Duration, Instant};

    #[test]
    fn a_line_has_it_all() {
        let mut picture = Picture::new(status(), Instant::now());
        picture.cores = vec![0.98, 0.5];
        assert_eq!(
            line(&picture),
            "step 1,125/4,500  epoch 3/100  loss 0.2500  112 steps/s  3,600 samples/s  cores 98 50 %  \
             cpu:0 busy 90 %, 2 waiting, dot -> f32[32, 10]  copy to cpu:0 busy 0 %, 0 waiting  \
             memory 13.0 MiB, 14.0 MiB planned"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let early = Status {
            step: 0,
            epoch: 0,
            steps: None,
            epochs: None,
            steps_per_second: None,
            samples_per_second: None,
            loss: None,
            devices: vec![device("cpu:1", 0)],
            ..status()
        };
        let mut picture = Picture::new(early.clone(), Instant::now());
        picture.cores = vec![0.25; 64];
        picture.update(early, picture.cores.clone(), Instant::now() + Duration::from_secs(70));
        assert_eq!(
            line(&picture),
            "step 0  epoch 0  loss –  64 cores 25 %  cpu:1 busy 0 %, 2 waiting, dot -> f32[32, 10]  \
             copy to cpu:1 busy 0 %, 0 waiting  memory 13.0 MiB, 14.0 MiB planned  no news for 1 min 10 s"
        );
    }
}
