"""Many trainings that look for better settings: what is searched (`space`), for what (`objective`), the file that
remembers it (`study`), and the loop that starts trainings and learns from them (`search`).

It stands on Optuna, the extra `sweep`; nothing here imports it before a study is opened.
"""
