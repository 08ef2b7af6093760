void padded(f32 p0[8][13], const f32 p1[60]) {
  boolx8 t0 = lanes(8) < 5;
  boolx8 t1 = lanes(8) < 2;
  for (i0 = 0; i0 < 8; i0++) {
    bool t2 = i0 >= 1 & i0 < 7;
    p0[i0*13 : +8] = p1[i0*10 - 10 : +8 if t2];
    p0[i0*13 + 8 : +8 if t0] = p1[i0*10 - 2 : +8 if t2 & t1 & t0];
  }
}
