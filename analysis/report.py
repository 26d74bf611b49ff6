"""stub for a moment"""


def write_report(run_folder, summary):
    pass
