"""What a bench found, for people: the five answers, the page, and the comparison of two runs.

Its contract: `read_results` checks a document, `answer_questions` judges it, `render_page` shows
it, `compare_runs` sets two side by side. It measures nothing and prints nothing.
"""
