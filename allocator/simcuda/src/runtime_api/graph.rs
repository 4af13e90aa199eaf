//! Graphs: nothing is ever captured.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::cell::Cell;

use crate::border::{Out, entry_points};

/// `cudaStreamCaptureStatusNone`.
const NOT_CAPTURING: i32 = 0;

/// `cudaStreamCaptureModeGlobal`.
const GLOBAL: i32 = 0;

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

entry_points! { runtime:
    fn cudaStreamIsCapturing(_stream: u64, status: Out<i32>) |_| {
        status.set(NOT_CAPTURING)
    }

    fn cudaStreamGetCaptureInfo(
        _stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        edges: Out<u64>,
        count: Out<u64>,
    ) |_| {
        status.set_if_wanted(NOT_CAPTURING);
        for nothing in [id, graph, dependencies, edges, count] {
            nothing.set_if_wanted(0);
        }
        Ok(())
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) |_| {
        MODE.set(mode.exchange(MODE.get())?);
        Ok(())
    }

    fn cudaGraphNodeGetDependencies(_node: u64, _nodes: u64, _edges: u64, count: Out<u64>) |_| {
        count.set_if_wanted(0);
        Ok(())
    }
}
