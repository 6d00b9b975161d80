#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sandcove_egress::fuzzing::requested_host(input));
