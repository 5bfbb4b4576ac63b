return now_ms(KEYS[1])
